"""The queries of paper 000 for which we have the tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part, Plot
from benchmarks.queries.network import train
from benchmarks.queries.paper.queries import QUERIES, Query
from benchmarks.queries.paper.run import (
    ENOUGH_SECONDS,
    NO_CACHE,
    OURS,
    SIDES,
    TABLE_ORDER,
    Costs,
    Measured,
    calibrate,
    measure,
)
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.reorder.tables import TABLES, read
from benchmarks.templates import template

WORDS = template("queries")

PICTURE = "queries_paper.png"
FILTER_GOAL, SHARE_GOAL, BEST_GOAL = 1.5, 0.85, 3.4
WARM_UP = 32
"""Rows that are asked before the measured ones; a query's first steps take longer."""


@dataclass(slots=True)
class Paper(Part):
    """The part. costs: of tokens on the first table's model; the others differ in their words.
    absent: files that are missing."""

    name = "paper"
    title = "The queries of paper 000"
    sizes: Sizes = FULL
    parameters: int = 0
    costs: Costs | None = None
    found: list[Measured] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads

        set_threads(settings.threads)
        self.sizes = choose(settings.quick)
        for name in dict.fromkeys(query.table for query in QUERIES):
            for measured in self._over(name, settings):
                self.found.append(measured)
                say(_said(measured))
        yield from figures(self.found, self.absent)

    def _over(self, name: str, settings: Settings) -> Iterator[Measured]:
        """The queries over a table, measured."""
        from benchmarks.stock import parameters

        (known,) = (each for each in TABLES if each.name == name)
        rows = read(known, settings.data)
        if rows is None:
            self.absent.append(known.file)
            return
        rows = rows.slice(0, self.sizes.rows)
        queries = [query for query in QUERIES if query.table == name]
        prompts = [call.prompt for query in queries for call in query.calls]
        model = train(self.sizes.model, rows.to_pylist(), prompts, self.sizes.vocabulary)
        self.parameters = parameters(model)
        self.costs = self.costs or calibrate(model, settings.seed)
        shorter, times = self.sizes.shorter, self.sizes.times
        for query in queries:
            measure(model, rows.slice(0, WARM_UP), query, shorter, self.costs)
            yield measure(model, rows, query, shorter, self.costs, times)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if not self.found or self.costs is None:
            return
        yield WORDS.block(
            "paper",
            rows=self.sizes.rows,
            model=self.sizes.model,
            parameters=self.parameters / 1e6,
            vocabulary=self.sizes.vocabulary,
            warm_up=WARM_UP,
            times=self.sizes.times,
            enough=ENOUGH_SECONDS,
        )
        shown = sorted(self.found, key=lambda at: (at.query.type, at.query.ours))
        yield from table(COLUMNS, [cells(measured) for measured in shown])
        if PICTURE in drawn:
            yield f"![Seconds of each query on the three sides]({PICTURE})\n"
        yield WORDS.block(
            "paper_tokens", prompt=1e6 * self.costs.prompt, decoded=1e6 * self.costs.decoded
        )
        yield from table(TOKEN_COLUMNS, [row for measured in shown for row in token_rows(measured)])
        yield WORDS.block("paper_missing")

    def pictures(self) -> Mapping[str, Plot]:
        """See Part."""
        return {PICTURE: partial(plot, self.found)} if self.found else {}


def figures(found: Sequence[Measured], absent: Sequence[str]) -> Iterator[Figure]:
    """Those of each query, the best, and whether all sides agree."""
    by_name = {measured.query.name: measured for measured in found}
    for query in QUERIES:
        yield query_figure(query, by_name.get(query.name))
    best = max(found, key=lambda at: at.gain, default=None)
    if best is None:
        missing = f"absent: {', '.join(absent)}"
        yield Figure("best_over_table_order", None, BEST_GOAL, note=missing)
        yield Figure("same_rows", None, 1.0, note=missing)
        return
    yield Figure("best_over_table_order", best.gain, BEST_GOAL, note=best.query.name)
    same = sum(measured.same_rows for measured in found)
    note = f"{same} of {len(found)} queries have the same rows on all sides"
    yield Figure("same_rows", same / len(found), 1.0, note=note, any_size=True)


def query_figure(query: Query, at: Measured | None) -> Figure:
    """How much faster ours is than table order: a T1's gain, and of others, its share of what their
    tokens allow."""
    is_filter = query.type == "T1"
    name = query.name if is_filter else f"{query.name}_of_allowed"
    goal = FILTER_GOAL if is_filter else SHARE_GOAL
    if at is None:
        return Figure(name, None, goal, note="its table is absent")
    seconds = f"{at.ran[TABLE_ORDER].seconds:.1f} / {at.ran[OURS].seconds:.1f} s"
    if is_filter:
        return Figure(name, at.gain, goal, note=f"{seconds}; its tokens allow {at.allowed:.2f}")
    note = f"{at.gain:.2f} ({seconds}) of {at.allowed:.2f} that its tokens allow"
    return Figure(name, at.gain / at.allowed, goal, note=note)


COLUMNS = (
    "query",
    *(f"{side}, s" for side in SIDES),
    "over no cache",
    "over table order",
    "tokens allow",
    "cached in table order",
    "cached, ours",
)


def cells(at: Measured) -> tuple[str, ...]:
    """The line of a query under COLUMNS."""
    return (
        f"{at.query.type} {at.query.table}{' (ours)' if at.query.ours else ''}",
        *(f"{at.ran[side].seconds:.1f}" for side in SIDES),
        f"{at.over(NO_CACHE):.2f}",
        f"{at.gain:.2f}",
        f"{at.allowed:.2f}",
        *(f"{at.ran[side].report.hit_rate:.0%}" for side in (TABLE_ORDER, OURS)),
    )


TOKEN_COLUMNS = (
    "query",
    "side",
    "calls",
    "tokens of a prompt",
    "prompt tokens computed",
    "answer tokens",
)


def token_rows(at: Measured) -> Iterator[tuple[str, ...]]:
    """A query's lines under TOKEN_COLUMNS, one for each side."""
    for side, ran in at.ran.items():
        yield (
            f"{at.query.type} {at.query.table}",
            side,
            f"{ran.report.calls:,}",
            f"{at.prompt_tokens:.0f}",
            f"{ran.computed:,}",
            f"{ran.report.output_tokens:,}",
        )


def _said(at: Measured) -> str:
    seconds = ", ".join(f"{side} {ran.seconds:.1f} s" for side, ran in at.ran.items())
    return f"{at.query.name}: {seconds}; {at.gain:.2f} of {at.allowed:.2f}"


_COLORS = {NO_CACHE: "#bab0ac", TABLE_ORDER: "#f28e2b", OURS: "#4e79a7"}
_PANELS = {
    "Filter (T1)": ("T1",),
    "Projection (T2)": ("T2",),
    "T3 and T4": ("T3", "T4"),
}


def plot(found: Sequence[Measured], path: Path) -> None:
    """Write a PNG with a panel for each kind of query. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    panels = {
        title: [each for each in found if each.query.type in types]
        for title, types in _PANELS.items()
    }
    panels = {title: shown for title, shown in panels.items() if shown}
    figure = Figure(figsize=(12, 4), layout="constrained")
    widths = [max(2, len(shown)) for shown in panels.values()]
    all_axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for axes, (title, shown) in zip(all_axes, panels.items(), strict=True):
        for number, (side, color) in enumerate(_COLORS.items()):
            seconds = [each.ran[side].seconds for each in shown]
            places = [place + 0.27 * number for place in range(len(shown))]
            axes.bar(places, seconds, 0.27, color=color, label=side)
        for place, each in enumerate(shown):
            height = each.ran[OURS].seconds
            axes.annotate(
                f"{each.gain:.1f}×", (place + 0.54, height), ha="center", va="bottom", fontsize=8
            )
        many = len({each.query.type for each in shown}) > 1
        names = [f"{each.query.type} " * many + each.query.table for each in shown]
        axes.set_xticks([place + 0.27 for place in range(len(shown))], names, fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.grid(axis="y", alpha=0.2)
    all_axes[0].set_ylabel("seconds")
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    figure.savefig(path, dpi=120)
