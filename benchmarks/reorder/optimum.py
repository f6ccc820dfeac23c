"""How far orders stay below the exact optimum, on the first rows of tables (paper 000, Table 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.reorder.tables import RealTable
from relquery.config import Order
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
        "squared",
        row_depth=None,
        column_depth=None,
        threshold=0,
    ).report


def _solver(method: Order) -> Solve:
    def solve(table: RealTable, rows: pa.Table) -> Report:
        return reorder(rows, method, table.dependencies, table.bags, "squared").report

    return solve


SOLVERS: dict[str, Solve] = {
    "ophr": _solver("ophr"),
    "fixed": _solver("fixed"),
    "ggr": _solver("ggr"),
    "ggr, no stopping": _ggr_without_stopping,
    "tree": _solver("tree"),
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
