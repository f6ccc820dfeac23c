"""How far orders stay below the exact optimum, on the first rows of tables (paper 000, Table 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.reorder.tables import RealTable
from relquery.errors import ConfigError
from relquery.table.reorder import reorder
from relquery.table.schedule import Report

Solve = Callable[[RealTable, pa.Table], Report]


def _ggr_without_stopping(table: RealTable, rows: pa.Table) -> Report:
    return reorder(
        rows,
        "ggr",
        table.dependencies,
        table.bags,
        row_depth=None,
        column_depth=None,
        threshold=0,
    ).report


SOLVERS: dict[str, Solve] = {
    "ophr": lambda table, rows: reorder(rows, "ophr", table.dependencies, table.bags).report,
    "fixed": lambda table, rows: reorder(rows, "fixed", table.dependencies, table.bags).report,
    "ggr": lambda table, rows: reorder(rows, "ggr", table.dependencies, table.bags).report,
    "ggr, no stopping": _ggr_without_stopping,
    "tree": lambda table, rows: reorder(rows, "tree", table.dependencies, table.bags).report,
}


@dataclass(frozen=True, slots=True)
class Small:
    """The first rows of a table, and what each solver makes of them; None: not proved."""

    table: str
    rows: int
    reports: dict[str, Report | None]

    @property
    def shortfall(self) -> float | None:
        """Share of the optimal prefix hit count that `tree` misses."""
        best, ours = self.reports["ophr"], self.reports["tree"]
        if best is None or ours is None:
            return None
        return 1 - ours.phc / best.phc if best.phc else 0.0


def compare(table: RealTable, rows: pa.Table, size: int) -> Small:
    """All solvers on the first `size` rows, with squared lengths as their aim."""
    some = rows.slice(0, size)
    return Small(table.name, some.num_rows, {name: _solve(name, table, some) for name in SOLVERS})


def _solve(name: str, table: RealTable, rows: pa.Table) -> Report | None:
    try:
        return SOLVERS[name](table, rows)
    except ConfigError:  # the optimum cannot be proved
        return None
