"""The rows of one SELECT while it runs, and for which share of them each criterion holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sqlglot import exp

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.sql.execute.rows import Rows
from relquery.sql.explain.shares import Place
from relquery.sql.host.database import Database, Scratch
from relquery.sql.plan.planner import SelectPlan
from relquery.sql.read.scopes import Context
from relquery.sql.walk.criteria import Tallies, criteria_in


@dataclass(slots=True)
class MeasuredRows(Rows):
    """Rows that keep tallies of what the answers decide."""

    tallies: Tallies = field(default_factory=Tallies)

    def matching(self, predicate: exp.Expr, rows: Int64s | None = None) -> Int64s:
        """See Rows. Also tallies the criteria of the predicate."""
        found = Rows.matching(self, predicate, rows)
        for one in criteria_in(predicate):
            new = self.tallies.new(one, self, self.alive if rows is None else rows)
            if len(new):
                tally = self.tallies.of(one, self)
                holds = exp.not_(one.node.copy()) if tally.inverted else one.node
                try:
                    tally.add(new, Rows.matching(self, holds, new))
                except QueryError:  # it may fail for a row in which the predicate does not read it
                    tally.add(new, np.intersect1d(new, found))
        return found


@dataclass(slots=True)
class Measuring:
    """Starts the SELECTs of a statement, and knows afterwards what was measured."""

    selects: list[MeasuredRows] = field(default_factory=list)

    def start(
        self, plan: SelectPlan, context: Context, database: Database, scratch: Scratch
    ) -> Rows:
        """The rows that a SELECT starts with."""
        rows = MeasuredRows.of(plan, context, database, scratch)
        assert isinstance(rows, MeasuredRows)
        self.selects.append(rows)
        return rows

    @property
    def counts(self) -> Mapping[Place, Sequence[tuple[int, int]]]:
        """By criterion, how many rows were judged and for how many it holds, each time."""
        return {
            (number, text): tally.counts
            for number, rows in enumerate(self.selects)
            for text, tally in rows.tallies.by_text.items()
        }
