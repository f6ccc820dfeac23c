"""A guard against answers that change with the order of fields: some inputs are asked in two.

Paper 000 (section 6.4) finds that answers to reordered prompts are as accurate as those to prompts
as written, for most models within 5%. A guard looks whether this holds for a call: it compares the
answers to a sample of the inputs whose fields the solver has moved.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from relquery.arrays import Int64s
from relquery.prompt import Answer, Compared
from relquery.reordering.schedule import Schedule
from relquery.report import in_digits
from relquery.sql.binder.call import Task
from relquery.sql.executor.dispatch import (
    AS_WRITTEN,
    NO_ANSWER,
    REORDERED,
    CacheLookup,
    CallDispatch,
)
from relquery.sql.executor.reading import read_answer
from relquery.sql.types.shape import ListOf, Shape, StructOf

TOLERANCE = 0.05
"""Scores agree if they differ by no more than this share of the labels' range."""

_SEED = 0
_NUMERIC = ("DECIMAL", "DOUBLE", "FLOAT")


@dataclass(frozen=True, slots=True, eq=False)
class OrderAgreement:
    """Two answers to each of some inputs, by input, and how many of them are the same.

    inputs: which were compared. least: the share of answers that must be the same.
    """

    inputs: Int64s
    reordered: dict[int, Answer]
    written: dict[int, Answer]
    agreed: int
    least: float

    @classmethod
    def of(
        cls, reordered: CacheLookup, written: CacheLookup, task: Task, least: float
    ) -> OrderAgreement:
        """Compare the answers to the same inputs in both orders."""
        inputs, known, other = reordered.inputs, reordered.known, written.known
        pairs = ((known.get(row, NO_ANSWER), other.get(row, NO_ANSWER)) for row in inputs.tolist())
        return cls(inputs, known, other, sum(agree(*pair, task) for pair in pairs), least)

    @property
    def compared(self) -> int:
        """How many inputs were compared."""
        return len(self.inputs)

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

    @property
    def chosen(self) -> dict[int, Answer]:
        """The answers that count, by input."""
        return self.written if self.is_pinned else self.reordered

    def others(self, used: dict[int, Answer]) -> list[Answer]:
        """All answers but those that are used."""
        given = [*self.reordered.items(), *self.written.items()]
        return [answer for row, answer in given if used.get(row) is not answer]


def sample(schedule: Schedule | None, most: int) -> Schedule | None:
    """Some inputs whose fields are not sent as written, at random but always the same.

    In the solver's order. None if it moves no fields.
    """
    if schedule is None:
        return None
    moved = np.flatnonzero((np.diff(schedule.fields, axis=1) < 0).any(axis=1))
    if len(moved) > most:
        moved = np.sort(np.random.default_rng(_SEED).choice(moved, most, replace=False))
    return schedule.part(moved) if len(moved) else None


def compare(dispatch: CallDispatch, schedule: Schedule | None) -> OrderAgreement | None:
    """Ask a sample of the inputs in both orders. None without a guard, or if no fields move.

    What the ledger has is not asked again.
    """
    config = dispatch.context.config
    some = sample(schedule, config.guard_rows)
    if some is None or config.guard is None:
        return None
    inputs = np.sort(some.rows)
    dispatch.total += len(inputs)
    reordered, written = (dispatch.lookup.marked(mark, inputs) for mark in (REORDERED, AS_WRITTEN))
    dispatch.note_known(len(reordered.known) + len(written.known))
    left = some.part(reordered.lacks(some.rows))
    dispatch.send(left.rows, left, reordered, reordered.known.__setitem__)
    as_written = dispatch.inputs.sorted(inputs[written.lacks(inputs)])
    dispatch.send(as_written, None, written, written.known.__setitem__)
    return OrderAgreement.of(reordered, written, dispatch.question.task, config.guard)


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
        shape = task.output.shape
        return _comparable(shape, value) == _comparable(shape, second)
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


def _comparable(shape: Shape, value: Any) -> Hashable:
    """What is equal for equal values."""
    if value is None:
        return None
    if isinstance(shape, StructOf):
        return tuple(_comparable(part.shape, value[part.name]) for part in shape.parts)
    if isinstance(shape, ListOf):
        items = [_comparable(shape.item, item) for item in value]
        return frozenset(items) if shape.distinct else tuple(items)
    return Decimal(value) if shape.kind.startswith(_NUMERIC) else value.strip()
