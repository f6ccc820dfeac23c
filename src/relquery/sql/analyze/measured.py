"""The rows of one SELECT while it runs, and for which share of them each criterion holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.sql.executor.criteria import Count, Criterion, Tallies, criteria_in
from relquery.sql.executor.rows import Rows
from relquery.sql.explain.shares import Place
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.inputs import distinct_rows
from relquery.sql.parser import build
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.plan import SelectPlan
from relquery.table.columns import encode


@dataclass(slots=True)
class MeasuredRows(Rows):
    """Rows that keep tallies of what the answers decide."""

    tallies: Tallies = field(default_factory=Tallies)

    def leave(self, predicate: Expression) -> bool:
        """Not possible: what passes the filter is counted."""
        return False

    def matching(self, predicate: Expression, rows: Int64s | None = None) -> Int64s:
        """See Rows. Also tallies the criteria of the predicate."""
        found = Rows.matching(self, predicate, rows)
        for one in criteria_in(predicate):
            new = self.tallies.new(one, self, self.alive if rows is None else rows)
            if len(new):
                tally = self.tallies.of(one, self)
                holds: Expression = one.node
                if tally.inverted:
                    holds = build.operation(build.NOT, one.node.copy())
                try:
                    passed = Rows.matching(self, holds, new)
                except QueryError:  # it may fail for a row in which the predicate does not read it
                    passed = np.intersect1d(new, found)
                inputs = self._inputs(one, new)
                passing = inputs[np.isin(new, passed)]
                tally.add(new, passed, len(np.unique(inputs)), len(np.unique(passing)))
        return found

    def _inputs(self, one: Criterion, rows: Int64s) -> Int64s:
        """(rows,), equal numbers where the calls of a criterion have equal inputs."""
        codes = [np.zeros((len(rows), 1), np.int64)]
        for call in one.calls:
            fields = self.plan.calls[call].fields
            tables = [self.cells((part,), rows).fetch() for part in fields]
            codes += [encode(table).codes.astype(np.int64) for table in tables]
        return distinct_rows(np.concatenate(codes, axis=1))[1]


@dataclass(slots=True)
class Measuring:
    """Starts the SELECTs of a statement, and knows afterwards what was measured."""

    selects: list[MeasuredRows] = field(default_factory=list)

    def start(self, plan: SelectPlan, database: Database, scratch: Scratch) -> Rows:
        """The rows that a SELECT starts with."""
        rows = MeasuredRows.of(plan, database, scratch)
        assert isinstance(rows, MeasuredRows)
        self.selects.append(rows)
        return rows

    @property
    def counts(self) -> Mapping[Place, Sequence[Count]]:
        """What was decided by each criterion, each time."""
        return {
            (number, text): tally.counts
            for number, rows in enumerate(self.selects)
            for text, tally in rows.tallies.by_text.items()
        }
