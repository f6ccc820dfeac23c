"""The trace on a network of this machine, in real time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.relserve import engine
from benchmarks.relserve.engine import LIMITS, LOAD, POLICIES, OnEngine
from benchmarks.relserve.simulated import OURS
from benchmarks.relserve.sizes import FULL, Sizes, choose
from benchmarks.relserve.traces import present
from benchmarks.templates import template
from relquery.config import PolicyName

WORDS = template("relserve")


@dataclass(slots=True)
class Engine(Part):
    """The part."""

    name = "engine"
    title = "On this machine"
    sizes: Sizes = FULL
    found: OnEngine | None = None

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads

        self.sizes = sizes = choose(settings.quick)
        if engine.TABLE not in {source.name for source in present(settings.data)}:
            say(f"{settings.data} does not contain the table {engine.TABLE}")
            return
        set_threads(settings.threads)
        self.found = engine.measure(sizes.model, sizes.engine, settings.data, settings.seed, say)
        yield from figures(self.found)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        at = self.found
        if at is None:
            return
        yield WORDS.block(
            "engine",
            model=self.sizes.model,
            count=self.sizes.engine,
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
                    f"{run.overhead:.2%}",
                    f"{run.steps:,}",
                )
                for name, run in at.runs.items()
            ],
        )


def figures(at: OnEngine) -> Iterator[Figure]:
    """The figures of the services."""
    ours = min(OURS, key=lambda name: at.runs[name].mean)
    best = at.runs[ours]
    goals: dict[PolicyName, float] = {"fcfs": 1.8, "static": 1.1}
    for name, goal in goals.items():
        note = f"{at.runs[name].mean:.2f} s / {best.mean:.2f} s ({ours})"
        yield Figure(f"engine_{name}_over_ours", at.runs[name].mean / best.mean, goal, note=note)
    throughput = best.throughput / at.runs["fcfs"].throughput
    note = f"{best.throughput:,.0f} / {at.runs['fcfs'].throughput:,.0f} tokens/s"
    yield Figure("engine_throughput", throughput, 0.97, note=note)
    slowest = max(POLICIES, key=lambda name: at.runs[name].overhead)
    note = f"share of the time, most of it under {slowest}"
    yield Figure("engine_scheduling", at.runs[slowest].overhead, 0.01, False, note)
    note = "under all policies, token for token"
    yield Figure("engine_equal_answers", at.equal, 1.0, note=note, any_size=True)
    note = f"{at.fit.r2:.3f} on the {at.fit.steps} batches fitted"
    yield Figure("calibration_r2", at.fit.held_out, 0.95, note=note)
