"""What scheduling costs in real time: with a long queue, and in a simulation of an hour."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.relserve import checks, queue
from benchmarks.relserve.queue import EACH, Crowded
from benchmarks.relserve.sizes import choose
from benchmarks.relserve.traces import present
from benchmarks.templates import template

WORDS = template("relserve")


@dataclass(slots=True)
class Scheduling(Part):
    """The part. relqueries: number waiting."""

    name = "scheduling"
    title = "A long queue"
    relqueries: int = 0
    crowded: list[Crowded] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        sizes = choose(settings.quick)
        self.relqueries = sizes.relqueries
        self.crowded = [
            queue.measure(name, sizes.relqueries, sizes.steps) for name in queue.POLICIES
        ]
        yield from figures(self.crowded)
        if checks.TABLE in {source.name for source in present(settings.data)}:
            simulated, took, requests = checks.hour(settings.data, settings.seed, sizes.hour)
            note = f"{simulated:,.0f} s of service, OPT-13B near saturation, under shortest"
            yield Figure("hour_simulated_seconds", took * 3_600 / simulated, 60, False, note)
            note = f"for 100,000 requests; {requests:,} of them in {took:.1f} s"
            yield Figure("many_simulated_seconds", took * 1e5 / requests, 15, False, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("crowded", requests=self.relqueries * EACH, relqueries=self.relqueries)
        yield from table(
            ("policy", "mean", "at most", "arrivals, at most"),
            [
                (each.policy, f"{each.mean:.2f}", f"{each.worst:.1f}", f"{each.arrivals:.1f}")
                for each in self.crowded
            ],
        )


def figures(rows: Sequence[Crowded]) -> Iterator[Figure]:
    """Of the slowest policy."""
    slowest = max(rows, key=lambda row: row.mean)
    note = f"milliseconds, mean of {slowest.policy}; at most {slowest.worst:.1f}"
    yield Figure("crowded_step_ms", slowest.mean, 5.0, False, note)
    most = max(rows, key=lambda row: max(row.worst, row.arrivals))
    note = f"milliseconds, at most, of {most.policy}: a step, and what is told of arrivals"
    yield Figure("crowded_most_ms", max(most.worst, most.arrivals), 20.0, False, note)
