"""Latencies over HTTP beside those in process, under every policy."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.serve.serving import run_client, running
from benchmarks.serve.sizes import choose
from benchmarks.serve.traces import at_load, faster, trace, written
from benchmarks.templates import template

WORDS = template("serve")
MACHINE, SPEED, LOAD = "a100-opt13b", 4, 0.9


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy, both ways: mean and 99th percentile of latencies, in seconds."""

    policy: str
    alone: tuple[float, float]
    http: tuple[float, float]

    @property
    def apart(self) -> tuple[float, float]:
        """By what share HTTP differs, of the mean and of the 99th percentile."""
        pairs = zip(self.http, self.alone, strict=True)
        mean, tail = (http / alone - 1 for http, alone in pairs)
        return mean, tail


@dataclass(slots=True)
class Latencies(Part):
    """The part. relqueries: of the trace."""

    name = "latencies"
    title = "Latencies under every policy"
    relqueries: int = 0
    compared: list[Compared] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        sizes = choose(settings.quick)
        self.relqueries = sizes.simulated
        queries = at_load(trace(sizes.simulated, sizes.rows, settings.seed), MACHINE, LOAD)
        model = f"simulated:{MACHINE},speed={SPEED}"
        with tempfile.TemporaryDirectory() as folder:
            path = written(faster(queries, SPEED), Path(folder) / "trace.jsonl")
            for policy in sizes.policies:
                alone = _summed(run_client("in_process", model, policy, path))
                with running(model, "--policy", policy) as server:
                    http = _summed(run_client("trace", server.url, model, path, "whole"))
                self.compared.append(Compared(policy, alone, http))
                mean, tail = self.compared[-1].apart
                say(f"{policy}: mean {mean:+.1%}, 99th percentile {tail:+.1%}")
        for name, at in (("mean", 0), ("p99", 1)):
            worst = max(self.compared, key=lambda each: each.apart[at])
            note = f"{worst.policy}: {worst.alone[at]:.3f} s in process, {worst.http[at]:.3f} s"
            yield Figure(f"{name}_apart", worst.apart[at], 0.1, False, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block(
            "latencies", relqueries=self.relqueries, machine=MACHINE, speed=SPEED, load=LOAD
        )
        yield from table(
            ("policy", "in process", "HTTP", "apart", "in process, p99", "HTTP, p99", "apart"),
            [
                (
                    each.policy,
                    f"{each.alone[0]:.3f}",
                    f"{each.http[0]:.3f}",
                    f"{each.apart[0]:+.1%}",
                    f"{each.alone[1]:.3f}",
                    f"{each.http[1]:.3f}",
                    f"{each.apart[1]:+.1%}",
                )
                for each in self.compared
            ],
        )


def _summed(found: dict[str, Any]) -> tuple[float, float]:
    latencies = sorted(found["latencies"])
    return fmean(latencies), latencies[int(0.99 * (len(latencies) - 1))]
