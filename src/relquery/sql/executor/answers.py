"""Answers by row: text, or a reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relquery.arrays import Bools, Int64s, Objects
from relquery.prompt import Answer, Finish
from relquery.sql.binder.task import Task
from relquery.sql.executor.ask import Replies
from relquery.sql.executor.reading import read_answer


@dataclass(frozen=True, slots=True)
class Failure:
    """row: a base row for which a call has no value. stage: which one asked. trouble: why."""

    call: int
    row: int
    stage: str
    trouble: str
    answer: Answer


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Answers to one call by base row. Filled by `store`.

    call: its index. answers: as given; None where not asked (yet). stages: names of the stages
    that asked. values: the values of valid answers: texts, or what their type's transport holds.
    asked: base rows that were asked. lost: base rows without an answer. failed: base rows without
    a value, for this or another reason.
    """

    call: int
    answers: Objects
    stages: Objects
    values: Objects
    asked: Bools
    lost: Bools
    failed: Bools

    @classmethod
    def none_yet(cls, call: int, rows: int) -> Values:
        """Nothing asked."""
        none, no = np.full(rows, None, dtype=object), np.zeros(rows, np.bool_)
        return cls(call, none, none.copy(), none.copy(), no, no.copy(), no.copy())

    def store(self, replies: Replies, rows: Int64s, task: Task, stage: str) -> list[Failure]:
        """Store the answers for some base rows. Returns a failure for each lost answer."""
        given = list(replies.answers)  # made when they are read
        read = [read_answer(answer, task) for answer in given]
        answers, values, troubles = (
            _by_row(column, replies.of_row)
            for column in (given, [one[0] for one in read], [one[1] for one in read])
        )
        lost = np.array([trouble is not None for trouble in troubles], dtype=np.bool_)
        self.asked[rows], self.lost[rows], self.failed[rows] = True, lost, lost
        self.answers[rows], self.stages[rows], self.values[rows] = answers, stage, values
        return [
            Failure(self.call, int(rows[at]), stage, troubles[at], answers[at])
            for at in np.flatnonzero(lost)
        ]

    def fail(self, row: int, trouble: str, stage: str) -> Failure:
        """Record that a row has no value. stage: used if the row was not asked."""
        self.failed[row] = True
        answer = self.answers[row] or _NOT_ASKED
        return Failure(self.call, row, self.stages[row] or stage, trouble, answer)


_NOT_ASKED = Answer(None, Finish.STOP, attempts=0)


def _by_row(items: Sequence[object], of_row: Int64s) -> Objects:
    """The item of each row. Items may be lists, which numpy would take for rows of an array."""
    column = np.empty(len(items) + 1, dtype=object)
    for at, item in enumerate(items):
        column[at] = item
    by_row: Objects = column[of_row]
    return by_row
