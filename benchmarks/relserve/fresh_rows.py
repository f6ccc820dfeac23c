"""Simulated with different rows for each relQuery, compared with a scheduler that knows all
answer lengths."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.relserve.common import means, shown, tables_and_seeds
from benchmarks.relserve.simulated import MAIN, Job, Measured, run_all
from benchmarks.relserve.sizes import FULL, Sizes, choose
from benchmarks.templates import template

WORDS = template("relserve")


@dataclass(slots=True)
class FreshRows(Part):
    """The part."""

    name = "fresh-rows"
    title = "Simulated, with fresh rows for each relQuery"
    sizes: Sizes = FULL
    settings: list[Measured] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = sizes = choose(settings.quick)
        sources, seeds = tables_and_seeds(settings, sizes, say)
        if not sources:
            return
        loads = (max(sizes.loads),)
        jobs = [
            Job(
                model, name, sizes.count, seeds, loads, settings.data, "independent",
                policies=MAIN, bound=True,
            )
            for model in sizes.models
            for name in sources
        ]  # fmt: skip
        for measured in run_all(jobs, settings.threads):
            self.settings.append(measured)
            say(f"{measured.name}: ours / clairvoyant {excess(measured):.2f}")
        yield from figures(self.settings)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("fresh", count=self.sizes.count, seeds=self.sizes.seeds)
        yield from means(self.settings, MAIN)
        yield WORDS.block("fresh-gains")
        yield from _gains(self.settings)


def excess(measured: Measured) -> float:
    """The ratio of ours to the clairvoyant, at the load where it is highest."""
    return max(measured.best(load) / bound for load, bound in measured.bounds.items())


def figures(settings: Sequence[Measured]) -> Iterator[Figure]:
    """The figures of the settings."""
    above = {each.name: excess(each) for each in settings}
    note = f"the most of {shown(above)}"
    yield Figure("ours_over_clairvoyant", max(above.values()), 1.1, False, note)
    fcfs = {each.name: each.over("fcfs") for each in settings}
    note = f"mean of {shown(fcfs)}"
    yield Figure("fresh_fcfs_over_ours", fmean(fcfs.values()), None, note=note)


def _gains(settings: Sequence[Measured]) -> Iterator[str]:
    yield from table(
        ("model", "table", "tokens", "fcfs / ours", "static / ours", "ours / clairvoyant"),
        [
            (
                each.model,
                each.table,
                f"{each.prompt_tokens:.0f} ({each.hit_rate:.0%})",
                f"{each.over('fcfs'):.2f}",
                f"{each.over('static'):.2f}",
                f"{each.best(max(each.bounds)) / each.bounds[max(each.bounds)]:.2f}",
            )
            for each in settings
        ],
    )
