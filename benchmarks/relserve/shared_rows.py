"""Simulated as in paper 003: relQueries over a table read the first rows of one sample."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part, Plot
from benchmarks.relserve import checks, plot
from benchmarks.relserve.checks import FIGURE_1, MODEL, TABLE, TABLE_6, Absolute, Threshold
from benchmarks.relserve.common import means, shown, tables_and_seeds
from benchmarks.relserve.simulated import ABLATIONS, MAIN, POLICIES, Job, Measured, run_all
from benchmarks.relserve.sizes import FULL, Sizes, choose
from benchmarks.templates import template

WORDS = template("relserve")

LATENCIES, ARRANGEMENTS, PARTS, THRESHOLDS = (
    f"relserve_{name}.png" for name in ("latencies", "arrangements", "parts", "thresholds")
)


@dataclass(slots=True)
class SharedRows(Part):
    """The part. long: of longer services."""

    name = "shared-rows"
    title = "Simulated, as in the paper: relQueries share rows"
    sizes: Sizes = FULL
    settings: list[Measured] = field(default_factory=list)
    long: list[Measured] = field(default_factory=list)
    thresholds: list[Threshold] = field(default_factory=list)
    absolute: Absolute | None = None

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = sizes = choose(settings.quick)
        sources, seeds = tables_and_seeds(settings, sizes, say)
        if not sources:
            return
        jobs = [
            Job(
                model, name, sizes.count, seeds, sizes.loads, settings.data, "shared",
                variants=ABLATIONS,
            )
            for model in sizes.models
            for name in sources
        ]  # fmt: skip
        for measured in run_all(jobs, settings.threads):
            self.settings.append(measured)
            say(f"{measured.name}: fcfs / ours {measured.over('fcfs'):.2f}")
        yield from gains(self.settings)
        longer = [
            Job(job.model, job.table, sizes.long, seeds[:1], (1.0,), settings.data, "shared", MAIN)
            for job in jobs
            if job.table in sources[:2]
        ]
        self.long.extend(run_all(longer, settings.threads))
        over = {each.name: each.over("fcfs") for each in self.long}
        note = f"services of {sizes.long} relQueries: {shown(over)}"
        yield Figure("fcfs_over_ours_long", fmean(over.values()), None, note=note)
        if len(sources) > 1:
            self.absolute = checks.absolute(settings.data, seeds, sizes.count)
        for load in (0.85, 1.2):
            self.thresholds += checks.thresholds(settings.data, seeds, load, sizes.count)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("shared", count=self.sizes.count, seeds=self.sizes.seeds)
        yield from _picture(LATENCIES, "Mean latency over the load", drawn)
        yield from means(self.settings, POLICIES)
        yield WORDS.block("gains")
        yield from _gains(self.settings)
        if self.long:
            yield WORDS.block("long", count=self.long[0].count)
            yield from means(self.long, MAIN)
        if self.absolute is not None:
            yield from _paper(self.absolute)
        yield WORDS.block("arrangements")
        yield from _picture(ARRANGEMENTS, "Variants of relserve", drawn)
        yield from _arrangements(self.settings)
        if self.beers is not None:
            yield WORDS.block("parts")
            yield from _picture(PARTS, "Waiting, core and tail", drawn)
            yield from _parts(self.beers)
        if self.thresholds:
            yield WORDS.block("thresholds")
            yield from _picture(THRESHOLDS, "Latency by threshold", drawn)
            yield from _thresholds(self.thresholds)

    def pictures(self) -> Mapping[str, Plot]:
        """See Part."""
        plots: dict[str, Plot] = {}
        if self.settings:
            plots[LATENCIES] = partial(plot.plot_latencies, self.settings)
            plots[ARRANGEMENTS] = partial(plot.plot_arrangements, self.settings)
        if self.beers is not None:
            plots[PARTS] = partial(plot.plot_parts, self.beers)
        if self.thresholds:
            plots[THRESHOLDS] = partial(plot.plot_thresholds, self.thresholds)
        return plots

    @property
    def beers(self) -> Measured | None:
        """The setting that the paper analyses in detail."""
        matching = (each for each in self.settings if (each.model, each.table) == (MODEL, TABLE))
        return next(matching, None)


def gains(settings: Sequence[Measured]) -> Iterator[Figure]:
    """The figures of the simulated settings."""
    fcfs = {each.name: each.over("fcfs") for each in settings}
    static = {each.name: each.over("static") for each in settings}
    chunked = {each.name: each.over("static-chunked") for each in settings}
    paper = {each.name: each.over("static", "relserve") for each in settings}
    own = {each.name: each.over("relserve", "shortest") for each in settings}
    yield Figure("fcfs_over_ours", fmean(fcfs.values()), 2.3, note=f"mean of {shown(fcfs)}")
    yield Figure("fcfs_over_ours_least", min(fcfs.values()), 2.15, note="of the same")
    yield Figure("static_over_ours_least", min(static.values()), 1.15, note=f"of {shown(static)}")
    note = f"mean of {shown(chunked)}"
    yield Figure("static_chunked_over_ours", fmean(chunked.values()), None, note=note)
    note = f"mean of {shown(paper)}"
    yield Figure("static_over_relserve", fmean(paper.values()), None, note=note)
    least = min(settings, key=lambda each: each.least)
    note = f"{least.name}: fcfs or static over ours, the least at any load"
    yield Figure("least_gain", least.least, 1.0, note=note, any_size=True)
    note = f"mean of {shown(own)}"
    yield Figure("relserve_over_shortest", fmean(own.values()), 1.0, note=note)


def _picture(name: str, text: str, drawn: Collection[str]) -> Iterator[str]:
    if name in drawn:
        yield f"![{text}]({name})\n"


def _gains(settings: Sequence[Measured]) -> Iterator[str]:
    yield from table(
        ("model", "table", "tokens", "waiting", "fcfs / ours", "static / ours",
         "static-chunked / ours", "static / relserve", "relserve / shortest"),
        [
            (
                each.model,
                each.table,
                f"{each.prompt_tokens:.0f} ({each.hit_rate:.0%})",
                f"{each.waiting('fcfs'):.0%}",
                f"{each.over('fcfs'):.2f}",
                f"{each.over('static'):.2f}",
                f"{each.over('static-chunked'):.2f}",
                f"{each.over('static', 'relserve'):.2f}",
                f"{each.over('relserve', 'shortest'):.2f}",
            )
            for each in settings
        ],
    )  # fmt: skip


def _paper(at: Absolute) -> Iterator[str]:
    yield WORDS.block("paper")
    yield from table(
        ("", *(f"{rate:g}/s" for rate in at.service)),
        [
            ("paper", *(f"{TABLE_6[rate]:.0f}" for rate in at.service)),
            ("here", *(f"{seconds:.0f}" for seconds in at.service.values())),
        ],
    )
    ours = {f"our_{name}": seconds for name, seconds in at.latencies.items()}
    yield WORDS.block("paper-after", **FIGURE_1, **ours)


def _arrangements(settings: Sequence[Measured]) -> Iterator[str]:
    yield from table(
        ("model", "table", *ABLATIONS),
        [
            (
                each.model,
                each.table,
                *(f"{each.highest[name] / each.highest['relserve']:.2f}" for name in ABLATIONS),
            )
            for each in settings
        ],
    )


def _parts(beers: Measured) -> Iterator[str]:
    yield from table(
        ("policy", "waiting", "core", "tail"),
        [(name, *(f"{seconds:.2f}" for seconds in beers.parts[name])) for name in POLICIES],
    )


def _thresholds(rows: Sequence[Threshold]) -> Iterator[str]:
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
            for row in rows
        ],
    )
