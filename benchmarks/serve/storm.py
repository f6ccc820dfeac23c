"""Requests that are cancelled, cut off and malformed: what is left of them afterwards."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import Figure, Say, Settings
from benchmarks.parts import Part
from benchmarks.serve.serving import Running, run_client, running
from benchmarks.serve.sizes import choose
from benchmarks.templates import template

WORDS = template("serve")
MODEL = "demo"
ROUNDS = 5
"""The requests come in so many parts, after each of which memory is read."""


@dataclass(slots=True)
class Storm(Part):
    """The part. memory: MiB after each round. seen: what became of the requests."""

    name = "storm"
    title = "Cancellations, disconnects and malformed bodies"
    requests: int = 0
    memory: list[float] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.requests = choose(settings.quick).requests
        each = self.requests // ROUNDS
        with running(MODEL) as server:
            port = server.url.rpartition(":")[2]
            run_client("storm", port, MODEL, str(each), str(settings.seed))  # the warm-up
            before = self._quiet(server)
            handles = server.handles()
            self.memory.append(server.memory() / 2**20)
            for number in range(1, ROUNDS + 1):
                storm = run_client("storm", port, MODEL, str(each), str(settings.seed + number))
                for what, count in storm.items():
                    self.seen[what] = self.seen.get(what, 0) + count
                after = self._quiet(server)
                self.memory.append(server.memory() / 2**20)
                say(f"round {number}: {self.memory[-1]:.0f} MiB")
            more = server.handles() - handles
        yield Figure("handles_leaked", max(0, more), 0, False, any_size=True)
        for what in ("held", "open"):
            note = f"{before[what]} before, {after[what]} after"
            yield Figure(f"{what}_leaked", after[what], 0, False, note, any_size=True)
        grown = self.memory[-1] / self.memory[1] - 1
        note = "MiB after each round: " + ", ".join(f"{each:.0f}" for each in self.memory)
        yield Figure("memory_grown", grown, 0.02, False, note)
        faults = sum(count for what, count in self.seen.items() if what.startswith("5"))
        yield Figure("server_errors", faults, 0, False, any_size=True)

    @staticmethod
    def _quiet(server: Running) -> dict[str, int]:
        """The engine's state once nothing is open any more; as it is after ten seconds."""
        for _ in range(100):
            state: dict[str, Any] = server.get("/console/state")
            left = {"held": state["cache"]["held"], "open": state["requests"]["open"]}
            if not any(left.values()):
                break
            time.sleep(0.1)
        return left

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        seen = ", ".join(f"{what}: {count:,}" for what, count in sorted(self.seen.items()))
        yield WORDS.block("storm", requests=f"{self.requests:,}", seen=seen)
