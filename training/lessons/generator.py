"""Seeded questions over generated rows, with the expected answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from training.domains.movies import MOVIES
from training.domains.products import PRODUCTS
from training.domains.rows import Ask, Domain, Kind, Row
from training.domains.split import Split
from training.domains.tickets import TICKETS
from training.lessons.prompt import Field, Prompt

DOMAINS: tuple[Domain, ...] = (MOVIES, TICKETS, PRODUCTS)
MAX_EXTRA_FIELDS = 7  # fields in addition to those that a question needs: up to all eight


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt, the right answer, and which question it was."""

    prompt: Prompt
    answer: str
    ask: Ask
    domain: str


def examples(seed: int, split: Split, kind: Kind) -> Iterator[Example]:
    """An endless stream of questions of one kind, each over a fresh row, domains in turn."""
    rng = Random(f"{seed}:{split.value}:{kind.value}")
    while True:
        for domain in DOMAINS:
            row = domain.row(rng, split)
            ask = rng.choice([ask for ask in domain.asks if ask.kind is kind])
            fields = pick_fields(rng, row, ask.needs, rng.randrange(MAX_EXTRA_FIELDS + 1))
            prompt = Prompt(rng.choice(ask.queries), fields)
            yield Example(prompt, ask.answer(row), ask, domain.name)


def shuffled(example: Example, rng: Random) -> Example:
    """The same question with its fields in another order (if there are two or more)."""
    fields = list(example.prompt.fields)
    while len(fields) > 1 and tuple(fields) == example.prompt.fields:
        rng.shuffle(fields)
    prompt = Prompt(example.prompt.query, tuple(fields))
    return Example(prompt, example.answer, example.ask, example.domain)


def pick_fields(rng: Random, row: Row, needs: tuple[str, ...], extra: int) -> tuple[Field, ...]:
    """The needed fields and `extra` others (or all, if there are fewer), in random order."""
    others = [name for name in row.fields if name not in needs]
    names = [*needs, *rng.sample(others, min(extra, len(others)))]
    rng.shuffle(names)
    return tuple((name, row.fields[name]) for name in names)
