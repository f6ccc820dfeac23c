"""What the three domains share: a row with its facts, and a domain that makes rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random

from training.domains.split import Split

Value = str | int


class Kind(Enum):
    """The kinds of question that the model is trained on."""

    FILTER = "filter"
    LABEL = "label"
    COPY = "copy"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Row:
    """One joined row: the model sees `fields`, and answers follow from `facts`."""

    fields: dict[str, Value]
    facts: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Parent:
    """The repeated side of the join, such as a movie, with the facts it determines."""

    fields: dict[str, Value]
    facts: dict[str, Value]

    def join(self, fields: dict[str, Value], facts: dict[str, Value]) -> Row:
        """The row of one child: its own fields first, as in a real join."""
        return Row({**fields, **self.fields}, {**facts, **self.facts})


@dataclass(frozen=True, slots=True)
class Ask:
    """A question in several wordings, the fields it needs, and a function from facts to answer."""

    kind: Kind
    name: str
    queries: tuple[str, ...]
    needs: tuple[str, ...]
    answer: Callable[[Row], str]


@dataclass(frozen=True, slots=True)
class Domain:
    """One demo table: how to draw a parent, a joined row, and what can be asked."""

    name: str
    parent: Callable[[Random, Split], Parent]
    child: Callable[[Random, Split, Parent], Row]
    asks: tuple[Ask, ...]

    def row(self, rng: Random, split: Split) -> Row:
        """A row of a fresh parent."""
        return self.child(rng, split, self.parent(rng, split))


def yes(holds: bool) -> str:
    """The answer of a filter."""
    return "Yes" if holds else "No"
