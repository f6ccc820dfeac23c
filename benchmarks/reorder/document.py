"""The document of `scripts/bench reorder`: what was measured, as Markdown with a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import lead
from benchmarks.harness import Figure, Say
from benchmarks.markdown import draw, figures, head, table
from benchmarks.reorder.cached import BOUNDED, Cached
from benchmarks.reorder.evolved import Evolved
from benchmarks.reorder.growth import Growth
from benchmarks.reorder.hits import METHODS, Reached
from benchmarks.reorder.optimum import SOLVERS, Hundred, Small
from benchmarks.reorder.plot import plot, plot_gain
from benchmarks.reorder.prices import ORDERS, REPEATS, Bills, estimate
from benchmarks.reorder.tables import TABLES
from benchmarks.templates import template
from relquery.prices.table import PRICES

WORDS = template("reorder")

NAME, PICTURE, GAIN = "reorder.md", "reorder_growth.png", "reorder_gain.png"


@dataclass(slots=True)
class Results:
    """The results of a run, filled in as they are measured.

    reached: per table, a measurement per method. real_tokens: whether bills count a model's tokens.
    cached_rows: of each table served from caches.
    billed_rows: number of rows billed per table.
    """

    figures: list[Figure] = field(default_factory=list)
    reached: dict[str, list[Reached]] = field(default_factory=dict)
    evolved: list[Evolved] = field(default_factory=list)
    small: list[Small] = field(default_factory=list)
    hundred: list[Hundred] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    bills: list[Bills] = field(default_factory=list)
    cached: list[Cached] = field(default_factory=list)
    cached_rows: int = 0
    real_tokens: bool = False
    billed_rows: int = 0


def write(folder: Path, results: Results, run: dict[str, Any], seed: int, say: Say) -> None:
    """Write the document and its picture into `folder`. run: the result of harness.document."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(partial(plot_gain, results.reached), folder / GAIN, say)
    drawn = draw(partial(plot, results.growth), folder / PICTURE, say) and drawn
    (folder / NAME).write_text(render(results, run, seed, drawn), encoding="utf-8")
    say(f"wrote {folder / NAME}")
    lead.write(folder / NAME, say)


def render(results: Results, run: dict[str, Any], seed: int, drawn: bool) -> str:
    """The whole document, which shows the picture if one was drawn."""
    parts = (
        _head(run, seed),
        figures(run),
        _hit_rates(results, drawn),
        _evolved(results),
        _caches(results),
        _optimum(results),
        _growth(results, drawn),
        _estimates(results),
        _bills(results),
    )
    return "\n".join(line for part in parts for line in part)


def _head(run: dict[str, Any], seed: int) -> Iterator[str]:
    yield from head("reorder", run, seed)


def _hit_rates(results: Results, drawn: bool) -> Iterator[str]:
    yield WORDS.block("hit-rates")
    if drawn:
        yield f"![Characters hit, as rows stand and in our order]({GAIN})"
        yield ""
    yield from table(
        ("table", "best public", *METHODS, "goal"),
        [
            (
                table.name,
                _timed(table.public, table.public_seconds),
                *(_timed(each.hit_rate, each.seconds) for each in results.reached[table.name]),
                f"≥ {table.goal:.1%}",
            )
            for table in TABLES
            if table.name in results.reached
        ],
    )


def _evolved(results: Results) -> Iterator[str]:
    if not results.evolved:
        return
    yield WORDS.block("evolved")
    yield from table(
        ("program", *results.evolved[0].hits, "score", "as the evaluator counts"),
        [
            (
                each.name,
                *(_timed(rate, each.seconds[name]) for name, rate in each.hits.items()),
                f"{each.score:.3f}",
                f"{each.published:.3f}",
            )
            for each in results.evolved
        ],
    )


def _caches(results: Results) -> Iterator[str]:
    yield WORDS.block("caches", rows=results.cached_rows)
    yield from table(
        ("table", "cache", "block", "at once", *METHODS, BOUNDED, "bound"),
        [
            (
                each.table,
                f"{each.cache:,}",
                f"{each.block}",
                f"{each.running}",
                *(f"{rate:.1%}" for rate in each.rates.values()),
                f"{each.bound:.1%}",
            )
            for each in results.cached
        ],
    )


def _timed(rate: float, seconds: float | None) -> str:
    if seconds is None:
        return f"{rate:.1%}"
    return f"{rate:.1%} ({seconds:.3f})" if seconds < 1 else f"{rate:.1%} ({seconds:.1f})"


def _optimum(results: Results) -> Iterator[str]:
    yield WORDS.block("optimum")
    yield from table(
        ("table", "rows", "PHC of ophr", *list(SOLVERS)[1:]),
        [(small.table, f"{small.rows}", *_solved(small)) for small in results.small],
    )
    yield WORDS.block("hundred")
    yield from table(
        ("table", "rows", "best found", "proved", "bound", "tree"),
        [
            (
                each.table,
                f"{each.rows}",
                f"{each.best:,}",
                "yes" if each.proved else "no",
                "-" if each.bound is None else f"{each.bound:,}",
                f"{each.share:.2%}",
            )
            for each in results.hundred
        ],
    )


def _solved(small: Small) -> Iterator[str]:
    best = small.reports["ophr"]
    yield "not proved" if best is None else f"{best.phc:,} ({best.seconds:.3f})"
    for report in list(small.reports.values())[1:]:
        if report is None:
            yield "-"
        elif best is None:
            yield f"{report.phc:,} ({report.seconds:.3f})"
        else:
            share = report.phc / best.phc if best.phc else 1.0
            yield f"{share:.2%} ({report.seconds:.3f})"


def _growth(results: Results, drawn: bool) -> Iterator[str]:
    yield WORDS.block("growth")
    if drawn:
        yield f"![Seconds over rows]({PICTURE})\n"
    yield from table(
        ("rows", "encoding", "tree", "tree, no time to search", "hit rate"),
        [
            (
                f"{each.rows:,}",
                f"{each.encoding:.3f}",
                f"{each.default:.2f}",
                f"{each.unsearched:.2f}",
                f"{each.hit_rate:.1%}",
            )
            for each in results.growth
        ],
    )


def _estimates(results: Results) -> Iterator[str]:
    rates = {
        name: (reached[0].hit_rate, reached[-1].hit_rate)
        for name, reached in results.reached.items()
    }
    yield WORDS.block("estimates")
    yield from table(
        ("price", "of", "read / uncached", *rates),
        [
            (
                name,
                PRICES[name].date,
                f"{PRICES[name].read / PRICES[name].uncached:.0%}",
                *(f"{share:.0%}" for share in shares),
            )
            for name, shares in estimate(rates).items()
        ],
    )


def _bills(results: Results) -> Iterator[str]:
    tokens = WORDS.block("real-tokens" if results.real_tokens else "pieces").strip()
    yield WORDS.block("bills", rows=results.billed_rows, times=REPEATS, tokens=tokens)
    yield from table(
        ("table", "price", "of", *(f"{order}, USD" for order in ORDERS), "saved"),
        [
            (
                each.table,
                each.price.name,
                each.price.date,
                *(f"{paid.usd:.3f} ({paid.read / paid.tokens:.0%})" for paid in each.of.values()),
                f"{each.saved(ORDERS[-1]):.0%}",
            )
            for each in results.bills
        ],
    )
