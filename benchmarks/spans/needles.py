"""Names found in hay, by one judge and by a tree of judges (paper 002, Fig. 16 and 17)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.spans import sizes
from benchmarks.spans.sizes import Sizes
from benchmarks.templates import template
from relquery import span
from relquery.connection import Connection, connect
from relquery.ir.nodes import Generate
from relquery.ir.optimize import Goal
from relquery.spans.work import SpanResult
from training.lessons.needles import AFTER, BEFORE, names_in, needle_texts

NEEDLES = 8
DRAWN_FROM = 4  # number of texts from which the model draws each generated candidate
LOST = 0.5  # below this share, the single judge is lost
GOAL = 0.95
Case = Sequence[Sequence[str]]  # for each candidate, the texts that it may be


@dataclass(frozen=True, slots=True)
class Found:
    """Share of cases with all names right, for a given amount of hay around each name.

    generated: whether the candidates are answers of inner generations, or given texts.
    """

    hay_words: int
    cases: int
    flat: float
    tree: float
    generated: bool = False


def ask(case: Case) -> Generate:
    """Ask one judge for the names in the candidates. Those with several texts are generated."""
    candidates = [
        texts[0] if len(texts) == 1 else _drawn(texts, seed) for seed, texts in enumerate(case)
    ]
    pieces = span.seq(span.user(BEFORE), span.bag(*candidates, separator="\n"), span.user(AFTER))
    return span.generate(pieces, max_tokens=4 * NEEDLES)


def _drawn(texts: Sequence[str], seed: int) -> Generate:
    """One of the texts, drawn by the model and generated token by token."""
    longest = max(map(len, texts))
    return span.generate(
        f"Write text {seed}.", labels=texts, temperature=1.0, seed=seed, max_tokens=longest
    )


def measure(sizes: Sizes, seed: int, say: Say, model: str = "demo") -> Iterator[Found]:
    """A row for each amount of hay, first with given texts, then with generated ones."""
    with connect(model, ledger=None) as connection:
        for generated, hays in ((False, sizes.hays), (True, sizes.generated_hays)):
            for hay_words in hays:
                count = sizes.generated_cases if generated else sizes.cases
                cases = list(_cases(Random(f"{seed} {hay_words}"), hay_words, count, generated))
                flat = _right(connection, cases, "cache") / count
                tree = _right(connection, cases, "attention") / count
                row = Found(hay_words, count, flat, tree, generated)
                say(str(row))
                yield row


def _cases(rng: Random, hay_words: int, count: int, generated: bool) -> Iterator[Case]:
    choices = DRAWN_FROM if generated else 1
    for _ in range(count):
        texts = needle_texts(rng, NEEDLES * choices, hay_words)
        yield [texts[index : index + choices] for index in range(0, len(texts), choices)]


def _right(connection: Connection, cases: Sequence[Case], goal: Goal) -> int:
    """How many answers contain each name once; prompts too long for the model's context fail.

    The order of the names does not count, because a bag may be asked in any order.
    """
    results = connection.run_bulk([ask(case) for case in cases], for_=goal, arity=2)
    return sum(
        result.error is None
        and sorted(names_in(result.text)) == sorted(names_in(_candidates(case, result)))
        for case, result in zip(cases, results, strict=True)
    )


def _candidates(case: Case, result: SpanResult) -> str:
    """The texts that the judge had to read."""
    said = {generation.answer.text for generation in result.report.generations}
    return "\n".join(text for texts in case for text in texts if len(texts) == 1 or text in said)


def figures(rows: Sequence[Found]) -> Iterator[Figure]:
    """The tree's score where the single judge first gets lost, for given and generated texts."""
    for generated, name in ((False, "locality_tree_right"), (True, "locality_generated_right")):
        yield _figure(name, [row for row in rows if row.generated is generated])


def _figure(name: str, rows: Sequence[Found]) -> Figure:
    lost = next((row for row in rows if row.flat < LOST), None)
    if lost is None:
        note = f"one judge is right in at least {LOST:.0%} of cases at every amount of hay"
        return Figure(name, None, GOAL, note=note)
    note = (
        f"{lost.hay_words} words around each of {NEEDLES} names, {lost.cases} cases; "
        f"one judge {lost.flat:.0%}"
    )
    return Figure(name, lost.tree, GOAL, note=note, any_size=True)


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
        self.found = list(measure(size, settings.seed, say))
        yield from figures(self.found)

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
