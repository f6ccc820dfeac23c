"""One table ordered by several methods, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from relquery.config import ORDERS, Order
from relquery.errors import ConfigError, unknown
from relquery.table.columns import Columns, encode
from relquery.table.dependencies.dependencies import Dependency
from relquery.table.reorder import DISCOVER, reorder
from relquery.table.schedule import Report, Schedule

ALL = "all"
METHODS: tuple[Order, ...] = ("original", "fixed", "ggr", "tree", "ophr")
OPHR_ROWS = 100  # of a table that `all` tries `ophr` on: about a minute at worst

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """names: of the columns. schedules: by method. left_out: why other methods are not here."""

    names: tuple[str, ...]
    rows: int
    schedules: dict[Order, Schedule]
    left_out: dict[Order, str]
    discovery_seconds: float | None

    @property
    def reports(self) -> dict[Order, Report]:
        """What each method reached."""
        return {method: schedule.report for method, schedule in self.schedules.items()}

    @property
    def best(self) -> Order:
        """The cheapest if there is a price, then the one that hits most; the first of equals."""
        return max(self.schedules, key=lambda method: _merit(self.schedules[method].report))


def _merit(report: Report) -> tuple[float, ...]:
    money = () if report.bill is None else (-report.bill.usd,)
    hits = report.tokens
    tokens = () if hits is None else (hits.lru or 0, hits.unlimited)
    return (*money, *tokens, report.phr)


def methods_of(name: str) -> tuple[Order, ...]:
    """`all`, or one method. Raises ConfigError."""
    if name != ALL and name not in ORDERS:
        known = [ALL, *METHODS]
        raise ConfigError(unknown("method", name, known))
    return tuple(method for method in METHODS if name in (ALL, method))


def compare(
    table: pa.Table,
    methods: Sequence[Order],
    dependencies: Sequence[str | Sequence[str] | Dependency],
    seconds: float | None,
    say: Say,
    **settings: Any,
) -> Comparison:
    """Order a table by each of the methods; settings: those of `reorder` besides.

    The dependencies are found once for all. say: told what is being done. seconds: for `tree`.
    """
    columns = encode(table)
    known, discovery_seconds = _find_dependencies(columns, dependencies, settings, say)
    schedules: dict[Order, Schedule] = {}
    left_out: dict[Order, str] = {}
    for method in methods:
        options = {**settings, "dependencies": known}
        if seconds is not None and (method == "tree" or len(methods) == 1):
            options["seconds"] = seconds
        try:
            if len(methods) > 1:
                _check_size(method, table.num_rows)
            say(method)
            schedules[method] = reorder(columns, method, **options)
        except ConfigError as error:
            if method != "ophr" or len(methods) == 1:
                raise
            left_out[method] = str(error)
    return Comparison(columns.names, table.num_rows, schedules, left_out, discovery_seconds)


def _check_size(method: Order, rows: int) -> None:
    if method == "ophr" and rows > OPHR_ROWS:
        raise ConfigError(
            f"The table has {rows:,} rows; with --method all it runs on at most {OPHR_ROWS}. "
            "Give --rows, or --method ophr."
        )


def _find_dependencies(
    columns: Columns,
    given: Sequence[str | Sequence[str] | Dependency],
    settings: dict[str, Any],
    say: Say,
) -> tuple[tuple[Dependency, ...], float | None]:
    """(those given and found, seconds that finding took if it was asked for)."""
    options = {"dependencies": given, "bags": settings.get("bags", ())}
    if DISCOVER not in given:
        return reorder(columns, "original", **options).report.dependencies, None
    say("dependencies")
    report = reorder(columns, "original", **options).report
    return report.dependencies, report.seconds
