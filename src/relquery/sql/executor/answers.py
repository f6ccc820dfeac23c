"""Answers to a call: as they are replied by input, and in columns by base row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from relquery.arrays import Bools, Int64s, Objects
from relquery.prompt import Answer
from relquery.sql.binder.task import Task
from relquery.sql.executor.guard import Comparison
from relquery.sql.executor.reading import read_answer


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """What a call was answered. answers: one per distinct input.

    of_row: (rows,), index of each row's answer, or -1 as in Inputs. paid: all answers that the
    backend may have been paid for. sent: the number of requests. known: how many the ledger
    answered. comparison: of answers in two orders; None if none were compared.
    """

    answers: Sequence[Answer]
    of_row: Int64s
    paid: Sequence[Answer]
    sent: int
    known: int
    solver_seconds: float = 0.0
    phr: float = 0.0
    comparison: Comparison | None = None

    @property
    def spent(self) -> dict[str, int]:
        """What the answers that were asked for have taken; those of the ledger took no attempt."""
        names = "prompt_tokens", "cached_tokens", "output_tokens", "attempts"
        asked = [answer for answer in self.paid if answer.attempts]
        return {name: sum(getattr(answer, name) for answer in asked) for name in names}


@dataclass(frozen=True, slots=True, eq=False)
class AnswerColumns:
    """Answers to one call by base row. Filled by `store`.

    answers: as given; None where not asked (yet). stages: names of the stages
    that asked. values: the values of valid answers: texts, or what their type's transport holds.
    asked: base rows that were asked. lost: base rows without an answer. troubles: why base rows
    have no value, for this or another reason.
    """

    answers: Objects
    stages: Objects
    values: Objects
    asked: Bools
    lost: Bools
    troubles: dict[int, str] = field(default_factory=dict)

    @classmethod
    def none_yet(cls, rows: int) -> AnswerColumns:
        """Nothing asked."""
        none, no = np.full(rows, None, dtype=object), np.zeros(rows, np.bool_)
        return cls(none, none.copy(), none.copy(), no, no.copy())

    def store(
        self, answers: Sequence[Answer], of_row: Int64s, rows: Int64s, task: Task, stage: str
    ) -> list[int]:
        """Store the answers for some base rows. Returns the rows whose answers are lost.

        of_row: (rows,), index of each row's answer, or -1 for rows that are not asked.
        """
        read = [read_answer(answer, task) for answer in answers]
        self.asked[rows], self.stages[rows] = True, stage
        self.answers[rows] = _by_row(answers, of_row)
        self.values[rows] = _by_row([value for value, _ in read], of_row)
        troubles = _by_row([trouble for _, trouble in read], of_row)
        lost = np.flatnonzero(np.not_equal(troubles, None))
        self.lost[rows[lost]] = True
        found: list[int] = rows[lost].tolist()
        self.troubles.update(zip(found, troubles[lost], strict=True))
        return found


def _by_row(items: Sequence[object], of_row: Int64s) -> Objects:
    """The item of each row. Items may be lists, which numpy would take for rows of an array."""
    column = np.empty(len(items) + 1, dtype=object)
    for at, item in enumerate(items):
        column[at] = item
    by_row: Objects = column[of_row]
    return by_row
