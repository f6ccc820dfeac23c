"""What methods of ordering reach: side by side, as tables for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.table import Table

from relquery.config import ORDERS, Order
from relquery.errors import ConfigError, unknown
from relquery.reordering.cost.billing import Bill
from relquery.reordering.cost.measure import Depth, HitReport
from relquery.reordering.dependencies import Dependency
from relquery.reordering.encode import encode
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Report, Schedule

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

    say: told what is being done. seconds: for `tree`.
    """
    columns = encode(table)
    schedules: dict[Order, Schedule] = {}
    left_out: dict[Order, str] = {}
    for method in methods:
        options = {**settings, "dependencies": dependencies}
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
    return Comparison(columns.names, table.num_rows, schedules, left_out)


def _check_size(method: Order, rows: int) -> None:
    if method == "ophr" and rows > OPHR_ROWS:
        raise ConfigError(
            f"The table has {rows:,} rows; with --method all it runs on at most {OPHR_ROWS}. "
            "Give --rows, or --method ophr."
        )


_DEPTHS = 8
_DEPENDENCIES = 12


def methods_table(comparison: Comparison) -> Table:
    """What each method reaches in characters."""
    rows = {
        method: [f"{report.seconds:.3f}", f"{report.phc:,}", f"{report.phr:.1%}"]
        for method, report in comparison.reports.items()
    }
    return _by_method(["seconds", "PHC", "hit rate"], rows, comparison.best)


def tokens_table(comparison: Comparison) -> Table:
    """What each method reaches in tokens, and in money where there is a price."""
    rows = {}
    headings: list[str] = []
    for method, report in comparison.reports.items():
        cells = {**_hit_cells(report.tokens), **_bill_cells(report.bill)}
        headings, rows[method] = list(cells), list(cells.values())
    return _by_method(headings, rows, comparison.best)


def _by_method(headings: Sequence[str], rows: Mapping[Order, Sequence[str]], best: Order) -> Table:
    """One row per method, the best of several in bold."""
    view = Table(show_edge=False, pad_edge=False)
    view.add_column("method", no_wrap=True)
    for heading in headings:
        view.add_column(heading, justify="right", no_wrap=True)
    for method, cells in rows.items():
        view.add_row(method, *cells, style="bold" if method == best and len(rows) > 1 else None)
    return view


def _hit_cells(hits: HitReport | None) -> dict[str, str]:
    if hits is None:
        return {}
    cells = {
        "tokens": f"{hits.tokens:,}",
        "previous": f"{hits.rate(hits.previous):.1%}",
        "any": f"{hits.rate(hits.unlimited):.1%}",
    }
    return cells if hits.lru is None else {**cells, "LRU": f"{hits.rate(hits.lru):.1%}"}


def _bill_cells(bill: Bill | None) -> dict[str, str]:
    return {} if bill is None else {"USD": f"{bill.usd:.4g}", "saved": f"{bill.savings:.1%}"}


def tokens_note(hits: HitReport, estimated: bool) -> str:
    """What the columns of the second table mean."""
    lru = ""
    if hits.lru is not None:
        lru = f"; LRU: by a cache of {hits.blocks:,} blocks of {hits.block_size} tokens"
    guess = " Tokens are estimated from words; --tokenizer counts real ones." if estimated else ""
    return (
        "Tokens that are cached if a prompt reuses the previous one (previous) or any earlier one "
        f"(any){lru}.{guess}"
    )


def in_short(comparison: Comparison) -> str:
    """Which order was chosen, in a line."""
    best = comparison.reports[comparison.best]
    among = f" ({criterion(comparison)})" if len(comparison.schedules) > 1 else ""
    line = f"Order: {best.method}{among}; hit rate {best.phr:.1%}."
    if best.bill is not None and not is_cached(comparison):
        return f"{line} {too_short(best.bill)}"
    return line


def criterion(comparison: Comparison) -> str:
    """Why the best method was chosen."""
    report = comparison.reports[comparison.best]
    if report.bill is not None and is_cached(comparison):
        return "cheapest"
    if report.tokens is not None:
        return "most tokens shared" if report.tokens.lru is None else "most hits under LRU"
    return "highest hit rate"


def is_cached(comparison: Comparison) -> bool:
    """Whether a provider's cache takes part in any bill."""
    bills = [report.bill for report in comparison.reports.values() if report.bill is not None]
    return any(bill.read or bill.written for bill in bills)


def too_short(bill: Bill) -> str:
    """Why nothing is cached."""
    return (
        f"No shared prefix reaches the {bill.price.minimum:,} tokens that {bill.price.name} caches "
        "at least, so every order costs the same."
    )


def depths_table(depths: Sequence[Depth]) -> Table:
    """What rows share at their first positions."""
    view = Table(show_edge=False, pad_edge=False)
    for heading in ("position", "distinct beginnings", "rows that hit", "characters hit"):
        view.add_column(heading, justify="right", no_wrap=True)
    for position, depth in enumerate(depths[:_DEPTHS], 1):
        counts = (position, depth.prefixes, depth.rows, depth.hit_characters)
        view.add_row(*(f"{count:,}" for count in counts))
    if len(depths) > _DEPTHS:
        view.caption = f"first {_DEPTHS} of {len(depths)} positions"
    return view


def dependency_lines(best: Report) -> Iterator[str]:
    """The dependencies that were given."""
    known = best.dependencies
    if known:
        yield "1 dependency:" if len(known) == 1 else f"{len(known)} dependencies:"
    for dependency in known[:_DEPENDENCIES]:
        yield f"  {dependency}"
    if len(known) > _DEPENDENCIES:
        yield f"  and {len(known) - _DEPENDENCIES} more; --json lists all"


def document(comparison: Comparison) -> dict[str, Any]:
    """All figures, for JSON."""
    best = comparison.reports[comparison.best]
    return {
        "rows": comparison.rows,
        "columns": list(comparison.names),
        "weight": best.weight,
        "best": best.method,
        "methods": [_method(report) for report in comparison.reports.values()],
        "left_out": dict(comparison.left_out),
        "dependencies": [
            {
                "determinants": list(dependency.determinants),
                "dependents": list(dependency.dependents),
            }
            for dependency in best.dependencies
        ],
    }


def _method(report: Report) -> dict[str, Any]:
    return {
        "method": report.method,
        "seconds": report.seconds,
        "phc": report.phc,
        "hit_rate": report.phr,
        "tokens": None if report.tokens is None else _tokens(report.tokens),
        "bill": None if report.bill is None else _bill(report.bill),
        "depths": [
            {
                "prefixes": depth.prefixes,
                "rows": depth.rows,
                "hit_characters": depth.hit_characters,
            }
            for depth in report.depths
        ],
    }


def _tokens(hits: HitReport) -> dict[str, int | None]:
    return {
        "sent": hits.tokens,
        "previous": hits.previous,
        "unlimited": hits.unlimited,
        "lru": hits.lru,
        "blocks": hits.blocks,
        "block_size": hits.block_size,
    }


def _bill(bill: Bill) -> dict[str, str | float]:
    return {
        "price": bill.price.name,
        "price_date": bill.price.date,
        "uncached": bill.uncached,
        "written": bill.written,
        "read": bill.read,
        "usd": bill.usd,
        "usd_without_cache": bill.usd_without_cache,
        "savings": bill.savings,
    }
