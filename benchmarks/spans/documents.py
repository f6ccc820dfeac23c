"""Time to the first token of an answer from documents (paper 002, Fig. 13b)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.spans.on_model import OnModel
from benchmarks.spans.setup import Writer, sides, timed
from benchmarks.spans.sizes import Sizes
from benchmarks.templates import template
from relquery import span
from relquery.config import EngineConfig
from relquery.connection import Connection
from relquery.ir.nodes import Generate

if TYPE_CHECKING:
    from relquery.model.served import ServedModel


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Seconds to the first token, for a number of documents.

    plain: documents as ordinary text. miss: as spans, none cached. hit: as spans, all cached, in
    another order and with another question. cached: how many of `tokens` were cached in a hit.
    """

    documents: int
    plain: float
    miss: float
    hit: float
    cached: int
    tokens: int


def measure(model: ServedModel, sizes: Sizes, seed: int, say: Say) -> Iterator[FirstTokens]:
    """A row for each number of documents."""
    writer = Writer(model, seed)
    with sides(model, EngineConfig(cache_tokens=sizes.cache_tokens)) as (plain, ours):
        for count in sizes.documents:
            # The first warms up. Short prompts are as cheap to repeat more often.
            repeats = sizes.repeats * max(sizes.documents) // count
            rounds = [
                _round(plain, ours, writer, count, sizes.document_tokens, plain_first=bool(i % 2))
                for i in range(repeats + 1)
            ][1:]
            row = _median(count, rounds)
            say(str(row))
            yield row


def _round(
    plain: Connection,
    ours: Connection,
    writer: Writer,
    count: int,
    tokens: int,
    *,
    plain_first: bool,
) -> FirstTokens:
    """Run plain, miss and hit once each."""
    documents = writer.documents(count, tokens)
    ask, again = writer.question(), writer.question()
    as_text = _answer("".join(documents) + ask)
    before = timed(plain, as_text)[0] if plain_first else None
    miss, _ = timed(ours, _answer(span.plus(documents), ask))
    hit, result = timed(ours, _answer(span.plus(writer.shuffled(documents)), again))
    baseline = timed(plain, as_text)[0] if before is None else before
    report = result.report
    return FirstTokens(count, baseline, miss, hit, report.cached_tokens, report.prompt_tokens)


def _median(count: int, rounds: Sequence[FirstTokens]) -> FirstTokens:
    return FirstTokens(
        count,
        plain=median(each.plain for each in rounds),
        miss=median(each.miss for each in rounds),
        hit=median(each.hit for each in rounds),
        cached=rounds[-1].cached,
        tokens=rounds[-1].tokens,
    )


def _answer(*input: span.Child) -> Generate:
    return span.generate(*input, max_tokens=1)


def figures(rows: Sequence[FirstTokens]) -> Iterator[Figure]:
    """The figures of the first and the last row."""
    single, many = rows[0], rows[-1]
    note = (
        f"{1e3 * many.plain:.0f} / {1e3 * many.hit:.1f} ms for {many.documents} documents, "
        f"{many.cached:,} of {many.tokens:,} tokens cached"
    )
    yield Figure("rag_hit_16", many.plain / many.hit, 20.0, note=note)
    note = f"{1e3 * many.plain:.0f} / {1e3 * many.miss:.0f} ms, nothing cached"
    yield Figure("rag_miss_16", many.plain / many.miss, 2.0, note=note)
    note = (
        f"{single.documents} document: plain {1e3 * single.plain:.1f} ms, "
        f"miss {1e3 * single.miss:.1f} ms, hit {1e3 * single.hit:.1f} ms"
    )
    worse = min(single.plain / single.miss, single.plain / single.hit)
    yield Figure("rag_plain_at_1", worse, 0.952, note=note)


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
        self.served = list(measure(model, self.sizes, settings.seed, say))
        yield from figures(self.served)

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
