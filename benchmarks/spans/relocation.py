"""The cost of reading a span at another position, and of decoding after spans."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Plot
from benchmarks.spans import decode, moves
from benchmarks.spans.decode import Decoded
from benchmarks.spans.moves import QUERIES, Moved
from benchmarks.spans.on_model import OnModel
from benchmarks.templates import template

WORDS = template("spans")

PICTURE = "spans_moves.png"


@dataclass(slots=True)
class Relocation(OnModel):
    """The part."""

    name = "relocation"
    title = "Relocation"
    moved: list[Moved] = field(default_factory=list)
    decoded: Decoded | None = None

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        model = self.load(settings, say)
        for tokens in self.sizes.spans:
            self.moved.append(moves.measure(model, tokens, self.sizes.repeats, say))
        self.decoded = decode.measure(model, self.sizes, settings.seed)
        yield decode.figure(self.decoded)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield self.setting()
        yield WORDS.block("moves", queries=QUERIES)
        if PICTURE in drawn:
            yield f"![Milliseconds over the span's size]({PICTURE})\n"
        yield from table(
            ("tokens", "where it was", "queries rotated"),
            [
                (f"{moved.tokens:,}", f"{moved.plain:.2f} ms", f"{moved.queries:.2f} ms")
                for moved in self.moved
            ],
        )
        decoded = self.decoded
        if decoded is not None:
            yield WORDS.block(
                "decode",
                spans=decoded.spans,
                tokens=decoded.tokens,
                ours=decoded.ours,
                plain=decoded.plain,
            )

    def pictures(self) -> Mapping[str, Plot]:
        """See Part."""
        return {PICTURE: partial(plot, self.moved)} if self.moved else {}


def plot(moved: Sequence[Moved], path: Path) -> None:
    """Write a PNG: milliseconds over the span's size, both logarithmic.

    Raises ImportError without matplotlib.
    """
    from matplotlib.figure import Figure

    sizes = [each.tokens for each in moved]
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(
        xscale="log",
        yscale="log",
        xlabel="tokens of the span",
        ylabel="milliseconds, all layers",
        title="A cached span at another position",
    )
    axes.plot(sizes, [each.plain for each in moved], "x-", label="where it was computed")
    axes.plot(sizes, [each.queries for each in moved], "o-", label=f"{QUERIES} queries rotated")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.2)
    axes.legend()
    figure.savefig(path, dpi=120)
