"""The document of `scripts/bench spans`: what was measured, as Markdown with a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Figure, Say
from benchmarks.markdown import draw, figures, head, table
from benchmarks.spans.bulk import CACHE_SHARE, Bulk
from benchmarks.spans.decode import Decoded
from benchmarks.spans.moves import QUERIES, Moved
from benchmarks.spans.needles import DRAWN_FROM, NEEDLES, Found
from benchmarks.spans.nested import Judged
from benchmarks.spans.plot import plot
from benchmarks.spans.rag import FirstTokens
from benchmarks.spans.sizes import VOCABULARY, Sizes
from benchmarks.templates import template

WORDS = template("spans")

NAME, PICTURE = "spans.md", "spans_moves.png"


@dataclass(slots=True)
class Results:
    """All of a run, filled in as it is measured. parameters: of the model, embeddings aside."""

    sizes: Sizes
    parameters: int = 0
    figures: list[Figure] = field(default_factory=list)
    served: list[FirstTokens] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    bulks: list[Bulk] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    decoded: Decoded | None = None
    found: list[Found] = field(default_factory=list)


def write(folder: Path, results: Results, run: dict[str, Any], seed: int, say: Say) -> None:
    """Write the document and its picture into `folder`; run: what harness.document gives."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(partial(plot, results.moved), folder / PICTURE, say)
    (folder / NAME).write_text(render(results, run, seed, drawn), encoding="utf-8")
    say(f"wrote {folder / NAME}")


def render(results: Results, run: dict[str, Any], seed: int, drawn: bool) -> str:
    """The whole document, which shows the picture if one was drawn."""
    parts = (
        _head(results, run, seed),
        figures(run),
        _served(results),
        _judged(results),
        _bulks(results),
        _moved(results, drawn),
        _found(results),
    )
    return "\n".join(line for part in parts for line in part)


def _head(results: Results, run: dict[str, Any], seed: int) -> Iterator[str]:
    yield from head("spans", run, seed)
    yield WORDS.block(
        "setting",
        model=f"`{results.sizes.model}`",
        parameters=results.parameters / 1e6,
        vocabulary=VOCABULARY,
    )


def _served(results: Results) -> Iterator[str]:
    yield WORDS.block("rag", repeats=results.sizes.repeats, tokens=results.sizes.document_tokens)
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
            for each in results.served
        ],
    )


def _judged(results: Results) -> Iterator[str]:
    yield WORDS.block("nested", inner=results.sizes.inner_tokens)
    yield from table(
        ("inner", "temperature", "executions", "plain", "ours", "plain / ours", "1%"),
        [
            (
                str(each.fan_out),
                f"{each.temperature:g}",
                str(len(each.ours)),
                f"{1e3 * median(each.plain):.1f} ({each.plain_tokens:,})",
                f"{1e3 * median(each.ours):.1f} ({each.our_tokens:,})",
                f"{each.speedup:.2f}",
                f"{each.lasting:.2f}",
            )
            for each in results.judged
        ],
    )


def _bulks(results: Results) -> Iterator[str]:
    yield WORDS.block("bulk", share=CACHE_SHARE)
    yield from table(
        ("data", "queries", "plain", "ordered", "spans, no reuse", "spans, as given", "ours"),
        [
            (
                each.name.removeprefix("bulk_"),
                f"{each.queries:,}",
                *(
                    f"{seconds:.1f}"
                    for seconds in (each.plain, each.ordered, each.sparse, each.given, each.ours)
                ),
            )
            for each in results.bulks
        ],
    )
    yield from table(
        (
            "data",
            "speedup",
            "bound in tokens",
            "reached",
            "over ordered",
            "cached as given",
            "ours",
        ),
        [
            (
                each.name.removeprefix("bulk_"),
                *(f"{ratio:.3f}" for ratio in (each.speedup, each.bound, each.reached)),
                f"{each.ordered / each.ours:.3f}",
                *(f"{cached / each.tokens:.1%}" for cached in (each.given_cached, each.cached)),
            )
            for each in results.bulks
        ],
    )


def _moved(results: Results, drawn: bool) -> Iterator[str]:
    yield WORDS.block("moves", queries=QUERIES)
    if drawn:
        yield f"![Tokens per millisecond over the span's size]({PICTURE})\n"
    yield from table(
        ("tokens", "queries rotated", "keys rotated", "CIDRA"),
        [
            (
                f"{each.tokens:,}",
                *(f"{speed:,.0f}" for speed in (each.queries, each.keys, each.cidra)),
            )
            for each in results.moved
        ],
    )
    at = results.decoded
    if at is not None:
        yield WORDS.block("decode", spans=at.spans, tokens=at.tokens, ours=at.ours, plain=at.plain)


def _found(results: Results) -> Iterator[str]:
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
            for each in results.found
        ],
    )
