"""Time to the first token of a prompt with many documents."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from relquery.bench.harness import Figure, Say, Settings
from relquery.bench.markdown import table
from relquery.bench.spans import rag, words
from relquery.bench.spans.parts.on_model import OnModel
from relquery.bench.spans.rag import FirstTokens


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
        yield words.RAG.format(repeats=self.sizes.repeats, tokens=self.sizes.document_tokens)
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
