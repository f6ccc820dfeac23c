"""Comparison of methods of ordering, as tables for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from relquery.cli.terminal import by_rows, table
from relquery.config import Order
from relquery.reordering.schedule import Schedule, ScheduleReport

_DEPENDENCIES = 12
"""Those that are shown."""


@dataclass(frozen=True, eq=False)
class OrderComparison:
    """Figures of several methods of ordering, side by side."""

    names: tuple[str, ...]
    """Of the columns."""
    rows: int
    schedules: dict[Order, Schedule]
    """By method."""
    left_out: dict[Order, str]
    """Why other methods are not there."""

    @cached_property
    def best(self) -> Order:
        """The cheapest if there is a price, then the one that hits most; the first of equals."""
        return max(self.schedules, key=lambda method: _merit(self.schedules[method].report))

    @property
    def _reports(self) -> list[ScheduleReport]:
        return [schedule.report for schedule in self.schedules.values()]

    @property
    def _best(self) -> ScheduleReport:
        return self.schedules[self.best].report

    def shown(self, *, is_estimated: bool) -> Iterator[object]:
        """Tables of what each method reaches, and why one is the best.

        is_estimated: whether tokens are.
        """
        best = self._best
        yield _by_method(self._reports, _figures)
        yield ""
        if best.tokens is not None:
            yield _by_method(self._reports, _token_figures)
            yield f"{_tokens_note(best, is_estimated=is_estimated)}\n"
        if len(self.schedules) > 1:
            yield f"Best: {best.method} ({self._criterion}), weight {best.weight}."
        yield from self._too_short()
        for method, reason in self.left_out.items():
            yield f"{method} was skipped. {reason}"
        known = best.dependencies
        if known:
            yield "1 dependency:" if len(known) == 1 else f"{len(known)} dependencies:"
        for dependency in known[:_DEPENDENCIES]:
            yield f"  {dependency}"
        if len(known) > _DEPENDENCIES:
            yield f"  and {len(known) - _DEPENDENCIES} more; --json lists all"

    @property
    def _criterion(self) -> str:
        """Why the best method was chosen."""
        best = self._best
        if best.bill is not None and self._is_cached:
            return "cheapest"
        if best.tokens is not None:
            return "most tokens shared" if best.tokens.lru is None else "most hits under LRU"
        return "highest hit rate"

    @property
    def _is_cached(self) -> bool:
        """Whether a provider's cache takes part in any bill."""
        return any(
            report.bill is not None and report.bill.read + report.bill.written
            for report in self._reports
        )

    def _too_short(self) -> Iterator[str]:
        """Why nothing is cached, if there is a price and nothing is."""
        bill = self._best.bill
        if bill is not None and not self._is_cached:
            yield (
                f"No shared prefix reaches the {bill.price.minimum:,} tokens that "
                f"{bill.price.name} caches at least, so every order costs the same."
            )

    def document(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {
            "rows": self.rows,
            "columns": list(self.names),
            "weight": self._best.weight,
            "best": self.best,
            "methods": list(map(_method, self._reports)),
            "left_out": dict(self.left_out),
            "dependencies": [asdict(dependency) for dependency in self._best.dependencies],
        }


def _merit(report: ScheduleReport) -> tuple[float, ...]:
    money = () if report.bill is None else (-report.bill.usd,)
    hits = report.tokens
    tokens = () if hits is None else (hits.lru or 0, hits.unlimited)
    return (*money, *tokens, report.phr)


def _by_method(
    reports: Sequence[ScheduleReport], figures: Callable[[ScheduleReport], dict[str, str]]
) -> object:
    """A table with a row per method."""
    columns = by_rows({"method": str(report.method), **figures(report)} for report in reports)
    return table(columns, words=("method",), lines=True)


def _figures(report: ScheduleReport) -> dict[str, str]:
    """What a method reaches in characters."""
    return {
        "seconds": f"{report.seconds:.3f}",
        "PHC": f"{report.phc:,}",
        "hit rate": f"{report.phr:.1%}",
    }


def _token_figures(report: ScheduleReport) -> dict[str, str]:
    """What a method reaches in tokens, and in money where there is a price."""
    cells: dict[str, str] = {}
    if (hits := report.tokens) is not None:
        cells["tokens"] = f"{hits.tokens:,}"
        shares = {"previous": hits.previous, "any": hits.unlimited, "LRU": hits.lru}
        cells |= {name: f"{hits.rate(n):.1%}" for name, n in shares.items() if n is not None}
    if (bill := report.bill) is not None:
        cells |= {"USD": f"{bill.usd:.4g}", "saved": f"{bill.savings:.1%}"}
    return cells


def _tokens_note(report: ScheduleReport, *, is_estimated: bool) -> str:
    """What the columns of tokens mean."""
    hits, lru = report.tokens, ""
    if hits is not None and hits.lru is not None:
        lru = f"; LRU: by a cache of {hits.blocks:,} blocks of {hits.block_size} tokens"
    guess = (
        " Tokens are estimated from words; --tokenizer counts real ones." if is_estimated else ""
    )
    return (
        "Tokens that are cached if a prompt reuses the previous one (previous) or any earlier one "
        f"(any){lru}.{guess}"
    )


def _method(report: ScheduleReport) -> dict[str, Any]:
    bill = report.bill
    return {
        "method": report.method,
        "seconds": report.seconds,
        "phc": report.phc,
        "hit_rate": report.phr,
        "tokens": None if report.tokens is None else asdict(report.tokens),
        "bill": bill
        and {
            "price": bill.price.name,
            "price_date": bill.price.date,
            **{name: getattr(bill, name) for name in _OF_BILL},
        },
        "depths": [asdict(depth) for depth in report.depths],
    }


_OF_BILL = ("uncached", "written", "read", "usd", "usd_without_cache", "savings")
