"""The cost of scheduling a step while very many prefill-only requests wait."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.baselines import Scheduler
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.prefill_only.sizes import choose
from benchmarks.relserve import scheduling as relserve
from benchmarks.relserve.scheduling import EACH, Crowded
from benchmarks.templates import template

WORDS = template("prefill_only")

QUEUED: tuple[Scheduler, ...] = ("fifo", "srjf-static", "srjf")


@dataclass(slots=True)
class Scheduling(Part):
    """The part. waiting: requests. crowded: by how they wait."""

    name = "scheduling"
    title = "A long queue"
    waiting: int = 0
    crowded: dict[str, list[Crowded]] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.waiting = choose(settings).waiting
        self.crowded = measure(self.waiting)
        yield from figures(self.crowded)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("crowded", waiting=self.waiting)
        yield from table(
            ("waiting as", "policy", "mean", "at most", "arrivals, at most"),
            [
                (kind, row.policy, f"{row.mean:.2f}", f"{row.worst:.1f}", f"{row.arrivals:.1f}")
                for kind, rows in self.crowded.items()
                for row in rows
            ],
        )


def measure(waiting: int) -> dict[str, list[Crowded]]:
    """The time to schedule a step with this many requests, by how they wait."""
    kinds = {
        "one relQuery": (1, waiting),
        f"{waiting // EACH:,} relQueries": (waiting // EACH, EACH),
    }
    return {
        kind: [relserve.measure(name, many, each=each, prefill_only=True) for name in QUEUED]
        for kind, (many, each) in kinds.items()
    }


def figures(by_kind: Mapping[str, Sequence[Crowded]]) -> Iterator[Figure]:
    """Of the slowest srjf."""
    rows = [(kind, row) for kind, rows in by_kind.items() for row in rows if row.policy == "srjf"]
    kind, slowest = max(rows, key=lambda row: row[1].mean)
    note = f"milliseconds, mean, {kind}; at most {slowest.worst:.1f}"
    yield Figure("srjf_step_ms", slowest.mean, 5.0, False, note)
    most = max(max(row.worst, row.arrivals) for _, row in rows)
    note = "milliseconds, at most: a step, and what is told while requests arrive"
    yield Figure("srjf_most_ms", most, 20.0, False, note)
