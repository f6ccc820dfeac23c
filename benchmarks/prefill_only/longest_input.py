"""How long an input may be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part, Plot
from benchmarks.prefill_only import lengths
from benchmarks.prefill_only.lengths import Lengths
from benchmarks.prefill_only.plot import plot_lengths
from benchmarks.prefill_only.sizes import choose
from benchmarks.templates import template

WORDS = template("prefill_only")

PICTURE = "prefill_only_lengths.png"


@dataclass(slots=True)
class LongestInput(Part):
    """The part."""

    name = "lengths"
    title = "Longest input"
    found: Lengths | None = None

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads

        set_threads(settings.threads)
        self.found = lengths.measure(choose(settings).lengths, say)
        yield from lengths.figures(self.found)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if self.found is not None:
            yield WORDS.block("lengths")
            if PICTURE in drawn:
                yield f"![Longest input by technique]({PICTURE})\n"
            yield from table(lengths.COLUMNS, lengths.rows(self.found))

    def pictures(self) -> Mapping[str, Plot]:
        """See Part."""
        return {} if self.found is None else {PICTURE: partial(plot_lengths, self.found)}
