"""The document of `relquery bench relserve`: what was measured, as Markdown with pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from relquery.bench.harness import Figure, Say
from relquery.bench.markdown import draw, figures, head, table
from relquery.bench.relserve import plot as pictures
from relquery.bench.relserve import words
from relquery.bench.relserve.checks import FIGURE_1, MODEL, TABLE, TABLE_6, Absolute, Threshold
from relquery.bench.relserve.engine import LIMITS, LOAD, OnEngine
from relquery.bench.relserve.queue import EACH, RELQUERIES, Crowded
from relquery.bench.relserve.simulated import POLICIES, Measured

NAME = "relserve.md"


@dataclass(slots=True)
class Results:
    """All of a run, filled in as it is measured."""

    count: int
    seeds: int
    model: str
    figures: list[Figure] = field(default_factory=list)
    settings: list[Measured] = field(default_factory=list)
    long: list[Measured] = field(default_factory=list)
    arrangements: list[Measured] = field(default_factory=list)
    thresholds: list[Threshold] = field(default_factory=list)
    absolute: Absolute | None = None
    engine: OnEngine | None = None
    engine_count: int = 0
    crowded: list[Crowded] = field(default_factory=list)

    @property
    def beers(self) -> Measured | None:
        """The setting that the paper takes apart."""
        found = (each for each in self.settings if (each.model, each.table) == (MODEL, TABLE))
        return next(found, None)


def write(folder: Path, results: Results, run: dict[str, Any], seed: int, say: Say) -> None:
    """Write the document and its pictures into `folder`; run: what harness.document gives."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {name for name, plot in _plots(results) if draw(plot, folder / name, say)}
    (folder / NAME).write_text(render(results, run, seed, drawn), encoding="utf-8")
    say(f"wrote {folder / NAME}")


def _plots(results: Results) -> Iterator[tuple[str, Callable[[Path], None]]]:
    if results.settings:
        yield "relserve_latencies.png", partial(pictures.plot_latencies, results.settings)
    if results.arrangements:
        yield "relserve_arrangements.png", partial(pictures.plot_arrangements, results.arrangements)
    if results.beers is not None:
        yield "relserve_parts.png", partial(pictures.plot_parts, results.beers)
    if results.thresholds:
        yield "relserve_thresholds.png", partial(pictures.plot_thresholds, results.thresholds)


def render(results: Results, run: dict[str, Any], seed: int, drawn: set[str]) -> str:
    """The whole document, which shows the pictures that were drawn."""
    parts = (
        _head(results, run, seed),
        figures(run),
        _simulated(results, drawn),
        _long(results),
        _paper(results),
        _arrangements(results, drawn),
        _parts(results, drawn),
        _thresholds(results, drawn),
        _engine(results),
        _crowded(results),
    )
    return "\n".join(line for part in parts for line in part)


def _head(results: Results, run: dict[str, Any], seed: int) -> Iterator[str]:
    yield from head("relserve", run, seed)
    yield words.SETTING.format(count=results.count, seeds=results.seeds)


def _picture(name: str, text: str, drawn: set[str]) -> Iterator[str]:
    if name in drawn:
        yield f"![{text}]({name})\n"


def _simulated(results: Results, drawn: set[str]) -> Iterator[str]:
    yield words.SIMULATED
    yield from _picture("relserve_latencies.png", "Mean latency over the load", drawn)
    yield from _means(results.settings)
    yield words.GAINS
    yield from table(
        ("model", "table", "tokens", "waiting", "fcfs / ours", "static / relserve", "static / ours",
         "relserve / shortest", "ours / clairvoyant"),
        [
            (
                each.model,
                each.table,
                f"{each.prompt_tokens:.0f} ({each.hit_rate:.0%})",
                f"{each.waiting('fcfs'):.0%}",
                f"{each.over('fcfs'):.2f}",
                f"{each.over('static', 'relserve'):.2f}",
                f"{each.over('static'):.2f}",
                f"{each.over('relserve', 'shortest'):.2f}",
                f"{each.best(max(each.bounds)) / each.bounds[max(each.bounds)]:.2f}",
            )
            for each in results.settings
            if each.bounds
        ],
    )  # fmt: skip
    yield words.WHY


def _means(settings: list[Measured]) -> Iterator[str]:
    yield from table(
        ("model", "table", "load", "per second", *POLICIES, "clairvoyant"),
        [
            (
                each.model,
                each.table,
                f"{load:g}",
                f"{load * each.saturation:.2f}",
                *(f"{means[name]:.2f}" for name in POLICIES),
                f"{each.bounds[load]:.2f}" if load in each.bounds else "",
            )
            for each in settings
            for load, means in each.means.items()
        ],
    )


def _long(results: Results) -> Iterator[str]:
    if results.long:
        yield words.LONG.format(count=results.long[0].count)
        yield from _means(results.long)


def _paper(results: Results) -> Iterator[str]:
    at = results.absolute
    if at is None:
        return
    yield words.PAPER
    yield from table(
        ("", *(f"{rate:g}/s" for rate in at.service)),
        [
            ("paper", *(f"{TABLE_6[rate]:.0f}" for rate in at.service)),
            ("here", *(f"{seconds:.0f}" for seconds in at.service.values())),
        ],
    )
    ours = {f"our_{name}": seconds for name, seconds in at.latencies.items()}
    yield words.PAPER_AFTER.format(**FIGURE_1, **ours)


def _arrangements(results: Results, drawn: set[str]) -> Iterator[str]:
    if not results.arrangements:
        return
    names = [name for name in results.arrangements[0].highest if name != "relserve"]
    yield words.ARRANGEMENTS
    yield from _picture("relserve_arrangements.png", "Variants of relserve", drawn)
    yield from table(
        ("model", "table", *names),
        [
            (
                each.model,
                each.table,
                *(f"{each.highest[name] / each.highest['relserve']:.2f}" for name in names),
            )
            for each in results.arrangements
        ],
    )


def _parts(results: Results, drawn: set[str]) -> Iterator[str]:
    if results.beers is None:
        return
    yield words.PARTS
    yield from _picture("relserve_parts.png", "Waiting, core and tail", drawn)
    yield from table(
        ("policy", "waiting", "core", "tail"),
        [
            (name, *(f"{seconds:.2f}" for seconds in parts))
            for name, parts in results.beers.parts.items()
        ],
    )


def _thresholds(results: Results, drawn: set[str]) -> Iterator[str]:
    if not results.thresholds:
        return
    yield words.THRESHOLDS
    yield from _picture("relserve_thresholds.png", "Latency by threshold", drawn)
    yield from table(
        ("load", "threshold", "mean", "maximum", "unit waiting"),
        [
            (
                f"{row.load:g}",
                "none" if row.seconds is None else f"{row.seconds:g}",
                f"{row.mean:.2f}",
                f"{row.worst:.1f}",
                f"{row.unit_waiting:.2f}",
            )
            for row in results.thresholds
        ],
    )


def _engine(results: Results) -> Iterator[str]:
    at = results.engine
    if at is None:
        return
    yield words.ENGINE.format(
        model=results.model,
        count=results.engine_count,
        load=LOAD,
        rate=LOAD * at.saturation,
        cache=LIMITS.cache_tokens,
    )
    yield from table(
        ("policy", "mean", "fcfs / it", "seconds in all", "tokens/s", "scheduling", "steps"),
        [
            (
                name,
                f"{run.mean:.2f}",
                f"{at.runs['fcfs'].mean / run.mean:.2f}",
                f"{run.seconds:.1f}",
                f"{run.throughput:,.0f}",
                f"{run.scheduling:.2%}",
                f"{run.steps:,.0f}",
            )
            for name, run in at.runs.items()
        ],
    )


def _crowded(results: Results) -> Iterator[str]:
    if not results.crowded:
        return
    yield words.CROWDED.format(requests=RELQUERIES * EACH, relqueries=RELQUERIES)
    yield from table(
        ("policy", "mean", "at most", "first step"),
        [
            (each.policy, f"{each.mean:.2f}", f"{each.worst:.1f}", f"{each.first:.0f}")
            for each in results.crowded
        ],
    )
