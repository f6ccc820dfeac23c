"""Time to the first token of a prompt with many documents."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.spans import rag
from benchmarks.spans.parts.on_model import OnModel
from benchmarks.spans.rag import FirstTokens
from benchmarks.templates import template

WORDS = template("spans")


@dataclass(slots=True)
class Documents(OnModel):
    """The part."""

    name = "documents"
    title = "Documents"
    served: list[FirstTokens] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        model = self.load(settings, say)
        self.served = list(rag.measure(model, self.sizes, settings.seed, say))
        yield from rag.figures(self.served)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield self.setting()
        yield WORDS.block("rag", repeats=self.sizes.repeats, tokens=self.sizes.document_tokens)
        yield from table(
            ("documents", "plain", "miss", "hit", "plain / miss", "plain / hit", "cached of a hit"),
            [
                (
                    str(each.documents),
                    *(f"{1e3 * seconds:.1f}" for seconds in (each.plain, each.miss, each.hit)),
                    f"{each.plain / each.miss:.2f}",
                    f"{each.plain / each.hit:.2f}",
                    f"{each.cached / each.tokens:.1%}",
                )
                for each in self.served
            ],
        )
