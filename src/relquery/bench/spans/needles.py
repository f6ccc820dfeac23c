"""Names found in hay, by one judge and by a tree of judges (paper 002, Fig. 17)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from relquery import span
from relquery.bench.harness import Figure, Say
from relquery.bench.spans.sizes import Sizes
from relquery.connection import Connection, connect
from relquery.demo.needles import AFTER, BEFORE, names_in, needle_texts
from relquery.ir.nodes import Generate
from relquery.ir.optimize import Goal

NEEDLES = 8
LOST = 0.5  # below this share, the single judge is lost


@dataclass(frozen=True, slots=True)
class Found:
    """Share of cases whose names are all right and in order, with so much hay around each name."""

    hay_words: int
    cases: int
    flat: float
    tree: float


def ask(texts: Sequence[str]) -> Generate:
    """The names in the texts, by one judge."""
    pieces = span.seq(span.user(BEFORE), span.bag(*texts, separator="\n"), span.user(AFTER))
    return span.generate(pieces, max_tokens=4 * NEEDLES)


def measure(sizes: Sizes, seed: int, say: Say, model: str = "demo") -> Iterator[Found]:
    """A row for each amount of hay."""
    with connect(model, ledger=None) as connection:
        for hay_words in sizes.hays:
            rng = Random(f"{seed} {hay_words}")
            cases = [needle_texts(rng, NEEDLES, hay_words) for _ in range(sizes.cases)]
            flat = _right(connection, cases, "cache")
            tree = _right(connection, cases, "attention")
            row = Found(hay_words, len(cases), flat / len(cases), tree / len(cases))
            say(str(row))
            yield row


def _right(connection: Connection, cases: Sequence[Sequence[str]], goal: Goal) -> int:
    """How many answers are right; what the model's context cannot hold is not."""
    results = connection.run_bulk([ask(texts) for texts in cases], for_=goal, arity=2)
    return sum(
        names_in(result.text) == names_in("\n".join(texts))
        for texts, result in zip(cases, results, strict=True)
    )


def figure(rows: Sequence[Found]) -> Figure:
    """What the tree finds where the single judge is first lost."""
    lost = next((row for row in rows if row.flat < LOST), None)
    if lost is None:
        note = f"one judge is right in at least {LOST:.0%} of cases at every amount of hay"
        return Figure("locality_tree_right", None, 0.95, note=note)
    note = (
        f"{lost.hay_words} words around each of {NEEDLES} names, {lost.cases} cases; "
        f"one judge {lost.flat:.0%}"
    )
    return Figure("locality_tree_right", lost.tree, 0.95, note=note)
