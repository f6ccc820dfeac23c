"""How well a model answers held-out questions. The model is passed as the function `answer`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from training.domains.rows import Kind
from training.domains.split import Split
from training.lessons.generator import Example, examples, shuffled
from training.lessons.prompt import Prompt

Answer = Callable[[Sequence[Prompt]], Sequence[str]]
GOALS = {
    "filter": 0.95,
    "label": 0.95,
    "copy": 0.90,
    "summary": 0.90,
    "same under shuffle": 0.95,
}


@dataclass(frozen=True, slots=True)
class Score:
    """Shares of held-out questions, by kind and by single question."""

    figures: dict[str, float]
    by_ask: dict[str, float]

    @property
    def missed(self) -> dict[str, float]:
        """The figures below their goal."""
        return {
            name: self.figures[name] for name, goal in GOALS.items() if self.figures[name] < goal
        }


def score(answer: Answer, per_kind: int = 120, seed: int = 1) -> Score:
    """Score exact answers on `per_kind` held-out questions of each kind.

    A summary counts if the whole sentence is right: the template, the item and the feeling
    or topic. Every question is asked a second time with its fields in another order; the share
    of questions over two fields or more with the same answer both times is "same under shuffle".
    """
    asked = [
        example
        for kind in Kind
        for example in islice(examples(seed, Split.HELD_OUT, kind), per_kind)
    ]
    rng = Random(seed)
    again = [shuffled(example, rng) for example in asked]
    answers = list(answer([example.prompt for example in asked + again]))
    first, second = answers[: len(asked)], answers[len(asked) :]
    right = [text == example.answer for text, example in zip(first, asked, strict=True)]
    same = [
        a == b
        for a, b, example in zip(first, second, asked, strict=True)
        if len(example.prompt.fields) > 1
    ]
    figures = _shares((example.ask.kind.value for example in asked), right)
    figures |= _shares(["same under shuffle"] * len(same), same)
    return Score(figures, _shares(map(_name, asked), right))


def _name(example: Example) -> str:
    return f"{example.domain}.{example.ask.kind.value}.{example.ask.name}"


def _shares(names: Iterable[str], holds: Iterable[bool]) -> dict[str, float]:
    """The share of True under each name."""
    hits: dict[str, list[bool]] = defaultdict(list)
    for name, hit in zip(names, holds, strict=True):
        hits[name].append(hit)
    return {name: sum(found) / len(found) for name, found in hits.items()}
