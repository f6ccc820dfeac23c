"""Which cells of a result are NULL because a call has no value in their row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relquery.sql import names as ours
from relquery.sql.executor.answers import Failure
from relquery.sql.executor.rows import Rows
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.planner.checks import answers_in
from relquery.sql.planner.plan import SelectPlan
from relquery.sql.render import Reasons


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
        if not failures or rows.plan.aggregated or final.distinct is not None:
            return None
        numbered = final.copy()
        numbered.items = [*numbered.items, build.column(ours.ROW)]
        troubles = {(one.call, one.row): one.trouble for one in failures}
        return cls(rows.sql(parser().sql(numbered)), rows.plan, troubles)

    def taken(self, table: pa.Table) -> tuple[pa.Table, Reasons]:
        """(the result without the numbers, why cells are empty)."""
        last = table.num_columns - 1
        numbers, table = table.column(last).to_numpy(), table.remove_column(last)
        failed = np.unique([row for _, row in self.troubles])
        at_fault = np.flatnonzero(np.isin(numbers, failed)).tolist()
        found: dict[tuple[int, int], str] = {}
        for column, item in enumerate(self.plan.final.items):
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
