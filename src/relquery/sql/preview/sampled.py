"""A few rows of one SELECT for a preview, drawn at random."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.executor.choices import SEED
from relquery.sql.executor.criteria import Tallies, criteria_in
from relquery.sql.executor.rows import Rows
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.cells import Cells
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.fields import Field
from relquery.sql.planner.plan import SelectPlan
from relquery.sql.types.leaves import Number, dumped


@dataclass(slots=True)
class SampledRows(Rows):
    """Some base rows of a plan, in their order, with tallies of what the answers decide.

    total: how many there are in all.

    most: the limit for rows, and for items of a group. largest: the size of the largest group of
    which only some items are used; 0 if no group was cut.
    """

    total: int = 0
    most: int = 0
    largest: int = 0
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
                tally.add(new, passed)
        return found

    def cells(self, fields: tuple[Field, ...], rows: Int64s) -> Cells:
        """See Rows. At most `most` items of a group are used, drawn at random."""
        found = Rows.cells(self, fields, rows)
        if not any(one.task.kind == "group" and one.fields == fields for one in self.plan.calls):
            return found

        def read(wanted: Int64s) -> pa.Table:
            table = found.read(wanted)
            texts = [self._some(text) for text in table.column(0).to_pylist()]
            return table.set_column(0, table.schema.field(0), pa.array(texts, pa.string()))

        return replace(found, read=read)

    def _some(self, text: str | None) -> str | None:
        items = [] if text is None else json.loads(text, parse_int=Number, parse_float=Number)
        if len(items) <= self.most:
            return text
        self.largest = max(self.largest, len(items))
        return dumped([items[at] for at in drawn(len(items), self.most).tolist()])


@dataclass(slots=True)
class Sample:
    """Starts each SELECT of a statement on at most `most` rows, and keeps these rows."""

    most: int
    selects: list[SampledRows] = field(default_factory=list)

    def start(self, plan: SelectPlan, database: Database, scratch: Scratch) -> Rows:
        """The rows that a SELECT starts with."""
        query = parser().sql(plan.context.around(plan.base))
        base = f"SELECT row_number() OVER () - 1 AS {ours.PLACE}, * FROM ({query}) AS {ours.BASE}"
        counted = f"SELECT count(*) FROM ({base})"
        total = database.fetch(counted).column(0)[0].as_py()
        chosen = scratch.view(pa.table({ours.PLACE: drawn(total, self.most)}), "drawn")
        some = (
            f"SELECT row_number() OVER (ORDER BY {ours.PLACE}) - 1 AS {ours.ROW}, "
            f"* EXCLUDE ({ours.PLACE}) FROM ({base}) SEMI JOIN {chosen} USING ({ours.PLACE})"
        )
        table, count = scratch.rows(some)
        rows = SampledRows(plan, database, scratch, table, count, np.arange(count))
        rows.total, rows.most = total, self.most
        self.selects.append(rows)
        return rows

    @property
    def lengths(self) -> Mapping[str, float]:
        """The mean number of tokens in each stage's answers, including those from the ledger."""
        found: dict[str, list[int]] = {}
        for values in (values for rows in self.selects for values in rows.values.values()):
            for stage, answer in zip(values.stages, values.answers, strict=True):
                if answer is not None and answer.text is not None:
                    found.setdefault(stage, []).append(answer.output_tokens)
        return {stage: sum(tokens) / len(tokens) for stage, tokens in found.items()}


def drawn(total: int, most: int) -> Int64s:
    """At most `most` of the numbers below `total`, ascending; always the same ones."""
    if total <= most:
        return np.arange(total)
    return np.sort(np.random.default_rng(SEED).choice(total, most, replace=False))
