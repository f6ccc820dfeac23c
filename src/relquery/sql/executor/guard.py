"""Whether the order of the fields changes answers, shown by inputs that are asked in both orders.

Paper 000 (section 6.4) finds that answers to reordered prompts are as accurate as those to prompts
as written, for most models within 5%. A guard looks whether this holds for a call: it compares the
answers to a sample of the inputs whose fields the solver has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from relquery.arrays import Int64s
from relquery.config import QueryConfig
from relquery.prompt import Answer, Compared
from relquery.report import in_digits
from relquery.sql.binder.task import Task
from relquery.sql.executor.answered import NO_ANSWER
from relquery.sql.executor.reading import read_answer
from relquery.sql.executor.sending import AS_WRITTEN, REORDERED, Sending, Shelf
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Shape, StructOf
from relquery.table.schedule import Schedule

TOLERANCE = 0.05
"""Scores agree if they differ by no more than this share of the labels' range."""

_SEED = 0
_NUMERIC = ("DECIMAL", "DOUBLE", "FLOAT")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many of the compared answers were the same, and which share of them must be."""

    agreed: int
    compared: int
    least: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[Answer, Answer]], task: Task, least: float) -> Verdict:
        """Compare the two answers to each of some inputs."""
        found = [agree(one, other, task) for one, other in pairs]
        return cls(sum(found), len(found), least)

    @property
    def agreement(self) -> float:
        """The share of answers that are the same, 0 to 1."""
        return self.agreed / self.compared

    @property
    def is_pinned(self) -> bool:
        """Whether fields must be sent as written."""
        return self.agreement < self.least

    @property
    def order(self) -> str:
        """The order of a stage whose fields are sent as written, for its report."""
        return f"pinned: agreement {in_digits(self.agreement)} of {self.compared}"


def sample_of(schedule: Schedule, most: int) -> Int64s:
    """Some places in a schedule whose fields are not as written, at random but always the same."""
    moved = np.flatnonzero((np.diff(schedule.fields, axis=1) < 0).any(axis=1))
    if len(moved) > most:
        moved = np.sort(np.random.default_rng(_SEED).choice(moved, most, replace=False))
    return moved


def agree(one: Answer, other: Answer, task: Task) -> bool:
    """Whether two answers have the same value.

    Numbers are compared as numbers, several labels without their order, texts without the white
    space around them, and texts that a query compares with others only by which of them they equal.
    An answer without a value agrees only with another one.
    """
    (value, trouble), (second, problem) = read_answer(one, task), read_answer(other, task)
    if trouble is not None or problem is not None:
        return trouble is not None and problem is not None
    if task.kind == "score":
        return abs(float(value) - float(second)) <= TOLERANCE * _range(task.sampling.labels)
    if task.output is not None:
        return _is_same(task.output.shape, value, second)
    if isinstance(task.sampling, Compared):
        wanted = task.sampling.texts
        return bool(value == second) or (value not in wanted and second not in wanted)
    return bool(value.strip() == second.strip())


def _range(labels: tuple[str, ...]) -> float:
    """How far scores can be apart: 1 for probabilities."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return 1.0
    return max(numbers) - min(numbers)


def _is_same(shape: Shape, value: Any, other: Any) -> bool:
    if value is None or other is None:
        return value is other
    if isinstance(shape, StructOf):
        return all(_is_same(part.shape, value[part.name], other[part.name]) for part in shape.parts)
    if isinstance(shape, ListOf) and shape.distinct:
        return set(value) == set(other)
    if isinstance(shape, ListOf):
        pairs = zip(value, other, strict=False)
        return len(value) == len(other) and all(_is_same(shape.item, *pair) for pair in pairs)
    return _is_same_leaf(shape, value, other)


def _is_same_leaf(leaf: Leaf, value: str, other: str) -> bool:
    if value.strip() == other.strip():
        return True
    return leaf.kind.startswith(_NUMERIC) and Decimal(value) == Decimal(other)


@dataclass(frozen=True, slots=True, eq=False)
class Both:
    """Two answers to each of some inputs. inputs: which. verdict: which of the answers count."""

    inputs: Int64s
    reordered: dict[int, Answer]
    written: dict[int, Answer]
    verdict: Verdict

    @property
    def chosen(self) -> dict[int, Answer]:
        """The answers that count, by input."""
        return self.written if self.verdict.is_pinned else self.reordered

    def others(self, used: Mapping[int, Answer]) -> list[Answer]:
        """All answers but those that are used."""
        given = [*self.reordered.items(), *self.written.items()]
        return [answer for row, answer in given if used.get(row) is not answer]


def sample(schedule: Schedule | None, config: QueryConfig) -> Schedule | None:
    """The inputs to compare, in the solver's order. None if it moves no fields."""
    if schedule is None:
        return None
    some = schedule.part(sample_of(schedule, config.guard_rows))
    return some if len(some.rows) else None


def compare(sending: Sending, schedule: Schedule | None) -> Both | None:
    """Ask a sample of the inputs in both orders. None if the schedule moves no fields.

    What the ledger has is not asked again.
    """
    config = sending.asker.config
    some = sample(schedule, config)
    if some is None or config.guard is None:
        return None
    inputs = np.sort(some.rows)
    sending.total += len(inputs)
    reordered, written = sending.shelf(REORDERED, inputs), sending.shelf(AS_WRITTEN, inputs)
    sending.note_known(len(reordered.known) + len(written.known))
    left = some.part(reordered.lacks(some.rows))
    sending.send(left.rows, left, reordered, reordered.known.__setitem__)
    as_written = sending.inputs.sorted(inputs[written.lacks(inputs)])
    sending.send(as_written, None, written, written.known.__setitem__)
    return judged(sending.question.task, reordered, written, config.guard)


def judged(task: Task, reordered: Shelf, written: Shelf, least: float) -> Both:
    """What two answers to each of some inputs show. least: see Verdict."""
    one, other = reordered.known, written.known
    inputs = reordered.inputs
    pairs = ((one.get(row, NO_ANSWER), other.get(row, NO_ANSWER)) for row in inputs.tolist())
    return Both(inputs, one, other, Verdict.of(pairs, task, least))
