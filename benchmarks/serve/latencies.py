"""Latencies over HTTP beside those in process, under every policy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.serve.serving import run_client, running
from benchmarks.serve.sizes import FULL, Sizes, choose
from benchmarks.serve.traces import at_load, faster, trace, written
from benchmarks.templates import template

WORDS = template("serve")
MACHINE, SPEED, LOAD, RUNS = "a100-opt13b", 4, 0.9, 2
Take = Callable[[Iterable[float]], float]
"""The mean of latencies, or their 99th percentile."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy, both ways: the latencies of each run, in seconds."""

    policy: str
    http: tuple[list[float], ...]
    alone: tuple[list[float], ...]

    def apart(self, take: Take) -> float:
        """By what share HTTP is above in process, of all runs together."""
        return take(_together(self.http)) / take(_together(self.alone)) - 1

    def again(self, take: Take) -> float:
        """By what share runs of one side differ from each other at most."""
        runs = ([take(run) for run in side] for side in (self.http, self.alone))
        return max(max(side) / min(side) - 1 for side in runs)

    def cells(self, take: Take) -> tuple[str, ...]:
        """Of the table: both sides, and how far they are apart."""
        sides = (f"{take(_together(side)):.3f}" for side in (self.alone, self.http))
        return (*sides, f"{self.apart(take):+.1%}", f"{self.again(take):.1%}")


@dataclass(slots=True)
class Latencies(Part):
    """The part."""

    name = "latencies"
    title = "Latencies under every policy"
    sizes: Sizes = FULL
    compared: list[Compared] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        sizes = self.sizes = choose(settings.quick)
        queries = at_load(trace(sizes.simulated, sizes.rows, settings.seed), MACHINE, LOAD)
        model = f"simulated:{MACHINE},speed={SPEED}"
        with tempfile.TemporaryDirectory() as folder:
            path = written(faster(queries, SPEED), Path(folder) / "trace.jsonl")
            for policy in sizes.policies:
                compared = _compare(model, policy, path, str(Path(folder) / "arrivals.json"))
                self.compared.append(compared)
                say(f"{policy}: mean {compared.apart(fmean):+.1%}, p99 {compared.apart(p99):+.1%}")
        for name, take in (("mean", fmean), ("p99", p99)):
            worst = max(self.compared, key=lambda each: each.apart(take))
            alone, http, *_ = worst.cells(take)
            note = f"{worst.policy}: {alone} s in process, {http} s over HTTP"
            yield Figure(f"{name}_apart", worst.apart(take), 0.1, False, note)
            worst = max(self.compared, key=lambda each: each.again(take))
            note = f"{worst.policy}: runs of one side"
            yield Figure(f"{name}_again", worst.again(take), None, False, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block(
            "latencies",
            relqueries=self.sizes.simulated,
            rows=self.sizes.rows,
            machine=MACHINE,
            speed=SPEED,
            load=LOAD,
        )
        columns = ("in process", "HTTP", "apart", "again")
        yield from table(
            ("policy", *columns, *(f"{column}, p99" for column in columns)),
            [(each.policy, *each.cells(fmean), *each.cells(p99)) for each in self.compared],
        )


def p99(latencies: Iterable[float]) -> float:
    """The 99th percentile."""
    ordered = sorted(latencies)
    return ordered[int(0.99 * (len(ordered) - 1))]


def _compare(model: str, policy: str, trace: str, arrivals: str) -> Compared:
    """Both sides in turn.

    Some policies decide differently if a relQuery comes a few milliseconds later, so the engine in
    process gets relQueries at the times at which they came to the server's.
    """
    http, alone = [], []
    for _ in range(RUNS):
        with running(model, "--policy", policy) as server:
            http.append(run_client("trace", server.url, model, trace, "whole", arrivals))
        alone.append(run_client("in_process", model, policy, trace, "whole", arrivals))
    return Compared(policy, *(tuple(run["latencies"] for run in side) for side in (http, alone)))


def _together(runs: Sequence[list[float]]) -> list[float]:
    return list(chain.from_iterable(runs))
