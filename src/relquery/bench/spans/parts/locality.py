"""Names found in hay, by one judge and by a tree of judges, with the demo model."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from relquery.bench.harness import Figure, Say, Settings
from relquery.bench.markdown import table
from relquery.bench.parts import Part
from relquery.bench.spans import needles, sizes, words
from relquery.bench.spans.needles import DRAWN_FROM, NEEDLES, Found


@dataclass(slots=True)
class Locality(Part):
    """The part."""

    name = "locality"
    title = "Attention locality"
    found: list[Found] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from relquery.model.stock import set_threads

        set_threads(settings.threads)
        size = sizes.choose(settings.quick)
        self.found = list(needles.measure(size, settings.seed, say))
        yield from needles.figures(self.found)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield words.NEEDLES.format(needles=NEEDLES, drawn=DRAWN_FROM)
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
