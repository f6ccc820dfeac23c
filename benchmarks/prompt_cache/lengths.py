"""Time to the first token by the tokens of a prompt's modules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part, Plot
from benchmarks.prompt_cache import first_token
from benchmarks.prompt_cache.first_token import QUESTION, SIDES, FirstToken
from benchmarks.prompt_cache.plot import plot
from benchmarks.prompt_cache.sizes import FULL, QUERIES, Sizes, choose
from benchmarks.spans.setup import load_model
from benchmarks.templates import template

WORDS = template("prompt_cache")
PICTURE = "prompt_cache.png"
GOALS = {"10m": {"hit": 30.0, "memory": 15.0, "disk": 10.0}, "100m": {"hit": 60.0}}
"""The least gain at the greatest length, by model and side."""


@dataclass(slots=True)
class FirstTokens(Part):
    """The part."""

    name = "first-token"
    title = "Time to the first token"
    sizes: Sizes = FULL
    parameters: dict[str, int] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    found: dict[str, list[FirstToken]] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import native, parameters, set_threads

        set_threads(settings.threads)
        self.sizes = choose(settings.quick)
        for name, spec in self.sizes.models:
            model = load_model(spec, QUERIES, settings.data)
            self.parameters[name] = parameters(model)
            decoder = native(model).decoder
            self.widths[name] = decoder.hidden * len(decoder.layers)
            say(f"{spec}: {self.parameters[name] / 1e6:.1f} M parameters without embeddings")
            with TemporaryDirectory() as folder:
                rows = first_token.measure(model, self.sizes, settings.seed, Path(folder), say)
                self.found[name] = list(rows)
            yield from self._figures(name)

    def _figures(self, name: str) -> Iterator[Figure]:
        rows = self.found[name]
        longest = rows[-1]
        for side in ("hit", "memory", "disk"):
            note = f"{longest.seconds['plain']:.3f} / {longest.seconds[side]:.4f} s"
            goal = GOALS.get(name, {}).get(side)
            yield Figure(f"{side}_{name}", longest.gain(side), goal, note=note)
        grows = min(b.gain("hit") / a.gain("hit") for a, b in pairwise(rows))
        yield Figure(f"gain_grows_{name}", grows, 1.0, note="least ratio of neighbouring lengths")
        slowest = max(row.seconds["hit"] / row.seconds["alone"] for row in rows)
        note = f"a hit, and a prompt of {QUESTION} tokens alone"
        yield Figure(f"alone_over_hit_{name}", 1 / slowest, 0.5, note=note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        for name, spec in self.sizes.models:
            # Keys and values of all layers, in float32; these models have a key for each head.
            words = {
                "model": f"`{spec}`",
                "parameters": self.parameters[name] / 1e6,
                "bytes": 2 * 4 * self.widths[name],
            }
            yield WORDS.block("model", **words)
            yield from table(
                (
                    "tokens",
                    *(f"{side}, ms" for side in SIDES),
                    "plain / hit",
                    "hit / alone",
                    "by operations",
                ),
                [
                    (
                        f"{row.tokens:,}",
                        *(f"{1e3 * row.seconds[side]:.1f}" for side in SIDES),
                        f"{row.gain('hit'):.1f}",
                        f"{row.seconds['hit'] / row.seconds['alone']:.2f}",
                        f"{self._operations(name, row.tokens):.2f}",
                    )
                    for row in self.found[name]
                ],
            )
            yield ""
        yield WORDS.block(
            "first-token", module=self.sizes.module, rounds=self.sizes.rounds, question=QUESTION
        )
        if PICTURE in drawn:
            yield WORDS.block("picture", picture=PICTURE)

    def _operations(self, name: str, tokens: int) -> float:
        """Operations of a hit over those of the added tokens alone: these read all modules."""
        attention = 4 * tokens * self.widths[name]
        return 1 + attention / (2 * self.parameters[name])

    def pictures(self) -> Mapping[str, Plot]:
        """See Part."""
        return {PICTURE: lambda path: plot(self.found, path)}
