"""An index over many passages: made once, and found by a second process."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.retrieval.index.indexed import Indexed, K, measure
from benchmarks.retrieval.sizes import FULL, Sizes, choose
from benchmarks.templates import template

WORDS = template("retrieval")

MAKING_GOAL, ASKING_GOAL = 120.0, 5.0
"""Seconds, for 100,000 passages and 1,000 questions."""
MIB = 2**20


@dataclass(slots=True)
class Index(Part):
    """The part."""

    name = "index"
    title = "An index over many passages"
    sizes: Sizes = FULL
    found: list[Indexed] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = sizes = choose(settings.quick)
        at = measure(sizes.passages, sizes.words, sizes.asked, settings.seed)
        self.found.append(at)
        say(f"{at.making}; again {at.finding}")
        yield from figures(at)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        for at in self.found:
            yield WORDS.block(
                "index",
                passages=self.sizes.passages,
                words=self.sizes.words,
                asked=self.sizes.asked,
                k=K,
                size=at.file_bytes / MIB,
            )
            yield from table(
                (
                    "process",
                    "first query, s",
                    "all questions, s",
                    "indexes made",
                    "most memory, GiB",
                ),
                [
                    (
                        name,
                        f"{one.first:.2f}",
                        f"{one.all:.2f}",
                        str(one.made),
                        f"{one.peak_gib:.2f}",
                    )
                    for name, one in (("first", at.making), ("second", at.finding))
                ],
            )


def figures(at: Indexed) -> Iterator[Figure]:
    """Seconds of the first and of all questions, what the second process makes, and recall."""
    note = "until the first query has its passages"
    yield Figure("index_seconds", at.making.first, MAKING_GOAL, at_least=False, note=note)
    note = f"all questions in one statement; {at.finding.all:.2f} s in the second process"
    yield Figure("index_all_seconds", at.making.all, ASKING_GOAL, at_least=False, note=note)
    note = f"its first query takes {at.finding.first:.2f} s, in place of {at.making.first:.2f}"
    made = float(at.finding.made)
    yield Figure("index_made_again", made, 0.0, at_least=False, note=note, any_size=True)
    note = f"share of the {K} best ranks that have the score of scikit-learn's exact search"
    yield Figure("index_recall", at.recall, 1.0, note=note, any_size=True)
