"""What it costs to read a span at another position, and to decode after spans."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from relquery.bench.harness import Figure, Say, Settings
from relquery.bench.markdown import table
from relquery.bench.parts import Plot
from relquery.bench.spans import decode, moves, words
from relquery.bench.spans.decode import Decoded
from relquery.bench.spans.moves import QUERIES, Moved
from relquery.bench.spans.parts.on_model import OnModel
from relquery.bench.spans.plot import plot

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
        yield words.MOVES.format(queries=QUERIES)
        if PICTURE in drawn:
            yield f"![Tokens per millisecond over the span's size]({PICTURE})\n"
        yield from table(
            ("tokens", "queries rotated", "keys rotated", "CIDRA"),
            [
                (
                    f"{each.tokens:,}",
                    *(f"{speed:,.0f}" for speed in (each.queries, each.keys, each.cidra)),
                )
                for each in self.moved
            ],
        )
        at = self.decoded
        if at is not None:
            yield words.DECODE.format(
                spans=at.spans, tokens=at.tokens, ours=at.ours, plain=at.plain
            )

    def pictures(self) -> Mapping[str, Plot]:
        """See Part."""
        return {PICTURE: partial(plot, self.moved)} if self.moved else {}
