"""Which cells of a result are NULL because a call has no value in their row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.answers.checks import answers_in
from relquery.sql.execute.answers import Failure
from relquery.sql.execute.rows import Rows
from relquery.sql.plan.planner import SelectPlan
from relquery.sql.read.source import to_sql

Reasons = Mapping[tuple[int, int], str]
"""Why a cell has no value, by (row of the result, column)."""

_NOT_ROWS = ("distinct", "group", "having")


@dataclass(frozen=True, slots=True)
class Marked:
    """A SELECT whose rows are numbered in a last column, and what failed in them.

    sql: the statement. troubles: by (call, base row).
    """

    sql: str
    plan: SelectPlan
    troubles: Mapping[tuple[int, int], str]

    @classmethod
    def of(cls, rows: Rows, failures: Sequence[Failure]) -> Marked | None:
        """None if nothing failed, or if the rows of the SELECT are not its base rows."""
        final = rows.plan.final
        order = final.args.get("order")
        is_all = order is not None and any(_is_all(one.this) for one in order.expressions)
        if not failures or rows.plan.aggregated or is_all or any(map(final.args.get, _NOT_ROWS)):
            return None
        numbered = final.copy().select(exp.column(ours.ROW))
        troubles = {(one.call, one.row): one.trouble for one in failures}
        return cls(rows.sql(to_sql(numbered)), rows.plan, troubles)

    def taken(self, table: pa.Table) -> tuple[pa.Table, Reasons]:
        """(the result without the numbers, why cells are empty)."""
        last = table.num_columns - 1
        numbers, table = table.column(last).to_numpy(), table.remove_column(last)
        failed = np.unique([row for _, row in self.troubles])
        at_fault = np.flatnonzero(np.isin(numbers, failed)).tolist()
        found: dict[tuple[int, int], str] = {}
        for column, item in enumerate(self.plan.final.expressions):
            calls = self._calls(answers_in(item))
            is_null = table.column(column).is_null().to_pylist() if calls else []
            for row in at_fault if calls else []:
                said = (self.troubles.get((call, int(numbers[row]))) for call in calls)
                trouble = next((one for one in said if one is not None), None)
                if trouble is not None and is_null[row]:
                    found[row, column] = trouble
        return table, found

    def _calls(self, calls: Sequence[int]) -> list[int]:
        """Some calls, and those whose answers their fields read."""
        found = list(calls)
        for call in found:  # grows
            found += [one.call for one in self.plan.calls[call].needs if one.call not in found]
        return found


def _is_all(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == "all"
