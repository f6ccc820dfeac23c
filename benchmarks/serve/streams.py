"""Thousands of open streams on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Figure, Say, Settings
from benchmarks.parts import Part
from benchmarks.serve.serving import run_client, running
from benchmarks.serve.sizes import choose
from benchmarks.templates import template

WORDS = template("serve")
RATE = 5
"""Tokens a second of each stream."""


@dataclass(slots=True)
class Streams(Part):
    """The part. cpu: processor seconds of the HTTP process and of the engine's."""

    name = "streams"
    title = "Open streams"
    streams: int = 0
    seconds: int = 0
    found: dict[str, Any] | None = None
    cpu: tuple[float, float] = (0.0, 0.0)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        sizes = choose(settings.quick)
        self.streams, self.seconds = sizes.streams, sizes.seconds
        tokens = RATE * sizes.seconds
        model = f"simulated:step={1 / RATE}"
        room = sizes.streams * (tokens + 64)
        options = ("--max-num-seqs", str(sizes.streams), "--cache-tokens", str(room))
        with running(model, "--policy", "sarathi", *options) as server:
            port = server.url.rpartition(":")[2]
            before = server.cpu()
            streams = run_client("streams", port, model, str(sizes.streams), str(tokens))
            after = server.cpu()
        self.found, self.cpu = streams, (after[0] - before[0], after[1] - before[1])
        expected = sizes.streams * tokens
        lost = expected - streams["tokens"]
        note = (
            f"{streams['whole']:,} of {sizes.streams:,} streams whole, {streams['tokens']:,} tokens"
        )
        yield Figure("tokens_lost", lost, 0, False, note, any_size=True)
        least, median = streams["paces"]
        note = f"the slowest stream: {least:.2f} tokens a second; the median: {median:.2f}"
        yield Figure("pace", least / RATE, 0.95, True, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        assert self.found is not None
        median, tail, most = self.found["gaps"]
        yield WORDS.block(
            "streams",
            streams=f"{self.streams:,}",
            rate=RATE,
            opening=f"{self.found['opening']:.1f}",
            median=f"{median:.3f}",
            tail=f"{tail:.3f}",
            most=f"{most:.2f}",
            front=f"{100 * self.cpu[0] / self.found['seconds']:.0f}",
            engine=f"{100 * self.cpu[1] / self.found['seconds']:.0f}",
        )
