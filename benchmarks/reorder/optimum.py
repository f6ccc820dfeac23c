"""How far orders are below the exact optimum, on the first rows of tables (paper 000, Table 6).

For a hundred rows the optimum usually cannot be proved in the time of a benchmark. So `tree` with
its defaults is compared with the best order found, and a bound says how much more is possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.reorder.tables import RealTable
from relquery.config import Order
from relquery.errors import ConfigError
from relquery.reordering.cost.measure import hits
from relquery.reordering.encode import encode
from relquery.reordering.items import Items, itemize
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import ScheduleReport
from relquery.reordering.solvers.lattice import build_lattice
from relquery.reordering.solvers.search import cheapest_tree

LONG_SECONDS = 10.0
MOST_ARCS = 2_000_000  # limit of the exact search: a few seconds

Solve = Callable[[RealTable, pa.Table], ScheduleReport]


def _ggr_without_stopping(table: RealTable, rows: pa.Table) -> ScheduleReport:
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
    def solve(table: RealTable, rows: pa.Table) -> ScheduleReport:
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
    """The first rows of a table, and each solver's result; None if it was not proved."""

    table: str
    rows: int
    reports: dict[str, ScheduleReport | None]

    @property
    def shortfall(self) -> float | None:
        """Share of the optimal prefix hit count that `tree` misses."""
        best, ours = self.reports["ophr"], self.reports["tree"]
        if best is None or ours is None:
            return None
        return 1 - ours.phc / best.phc if best.phc else 0.0


def compare(table: RealTable, rows: pa.Table, size: int) -> Small:
    """Run all solvers on the first `size` rows, maximising squared lengths."""
    some = rows.slice(0, size)
    return Small(table.name, some.num_rows, {name: _solve(name, table, some) for name in SOLVERS})


@dataclass(frozen=True, slots=True)
class Hundred:
    """`tree` on the first rows of a table, in characters hit.

    tree: with its defaults. best: the better of a longer `tree` and the exact search within its
    limit. bound: no order hits more; None if the table is too complex to compute it.
    """

    table: str
    rows: int
    tree: int
    best: int
    bound: int | None

    @property
    def share(self) -> float:
        """The hits of `tree` as a share of the best."""
        return self.tree / self.best if self.best else 1.0

    @property
    def proved(self) -> bool:
        """Whether the best is the optimum."""
        return self.bound == self.best


def compare_hundred(table: RealTable, rows: pa.Table, size: int = 100) -> Hundred:
    """Run `tree` on the first `size` rows, maximising tokens (here characters)."""
    some = rows.slice(0, size)
    items = itemize(encode(some), table.bags)
    orders = [_characters(table, some, items, seconds) for seconds in (None, LONG_SECONDS)]
    bound = None
    try:
        lattice = build_lattice(items.slots, items.characters, items.beginnings)
    except ConfigError:
        pass
    else:
        tree, least = cheapest_tree(lattice, MOST_ARCS)
        most = int(items.characters[items.slots].sum() - lattice.weight[0])
        orders.append(most - tree.cost)
        bound = most - least
    return Hundred(table.name, some.num_rows, orders[0], max(orders), bound)


def _characters(table: RealTable, rows: pa.Table, items: Items, seconds: float | None) -> int:
    sent = reorder(rows, "tree", table.dependencies, table.bags, "tokens", seconds=seconds)
    return hits(items, sent.rows, sent.fields).hit


def _solve(name: str, table: RealTable, rows: pa.Table) -> ScheduleReport | None:
    try:
        return SOLVERS[name](table, rows)
    except ConfigError:  # the optimum cannot be proved
        return None
