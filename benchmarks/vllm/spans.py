"""Spans in vLLM by the KV connector, beside plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.engine.network import make_network
from benchmarks.engine.sizes import choose
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.templates import template
from benchmarks.vllm.environment import python_of, run

WORDS = template("vllm")
FULL, QUICK = (16, 256, 7), (3, 64, 1)
"""Passages, tokens of each, and rounds."""


@dataclass(slots=True)
class Spans(Part):
    """The part."""

    name = "spans"
    title = "Spans by the connector"
    found: dict[str, Any] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        if settings.vllm is None:
            yield Figure("first token, plain text over spans", None, 4.0, note="without vLLM")
            return
        python = python_of(settings.vllm, say)
        sizes = QUICK if settings.quick else FULL
        with TemporaryDirectory() as name:
            make_network(Path(name), choose(settings.quick), settings.data, settings.seed)
            self.found = run(python, "spans", name, *map(str, sizes))
        plain, ours = (self.found["seconds"][side] for side in ("plain", "spans"))
        yield Figure(
            "first token, plain text over spans",
            plain / ours,
            4.0,
            note=f"{1e3 * plain:.0f} ms over {1e3 * ours:.0f} ms",
        )
        yield Figure(
            "log-probabilities apart",
            self.found["apart"],
            1e-4,
            at_least=False,
            any_size=True,
            note="from one pass with an explicit block-diagonal mask",
        )

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        del drawn
        if not self.found:
            return
        passages, tokens, rounds = FULL
        yield WORDS.block("spans", passages=passages, tokens=tokens, rounds=rounds)
        yield from table(
            ("prompt", "first token", "tokens cached"),
            [
                (
                    {"spans": "spans", "plain": "plain text"}[side],
                    f"{1e3 * taken:.0f} ms",
                    f"{self.found['cached'][side]:,}",
                )
                for side, taken in self.found["seconds"].items()
            ],
        )
