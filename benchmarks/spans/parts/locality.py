"""Names found in hay, by one judge and by a tree of judges, with the demo model."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.spans import needles, sizes
from benchmarks.spans.needles import DRAWN_FROM, NEEDLES, Found
from benchmarks.templates import template

WORDS = template("spans")


@dataclass(slots=True)
class Locality(Part):
    """The part."""

    name = "locality"
    title = "Attention locality"
    found: list[Found] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads

        set_threads(settings.threads)
        size = sizes.choose(settings.quick)
        self.found = list(needles.measure(size, settings.seed, say))
        yield from needles.figures(self.found)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("needles", needles=NEEDLES, drawn=DRAWN_FROM)
        yield from table(
            ("candidates", "words", "cases", "one judge", "tree"),
            [
                (
                    "generated" if each.generated else "given",
                    str(each.hay_words),
                    str(each.cases),
                    f"{each.flat:.0%}",
                    f"{each.tree:.0%}",
                )
                for each in self.found
            ],
        )
