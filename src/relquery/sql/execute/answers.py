"""Answers by row: text, or a reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relquery.arrays import Bools, Int64s, Objects
from relquery.prompt import Answer, Finish, Sampling
from relquery.sql.execute.ask import Replies, problem


@dataclass(frozen=True, slots=True)
class Failure:
    """row: a base row for which a call has no value. stage: the one that asked. trouble: why."""

    call: int
    row: int
    stage: str
    trouble: str
    answer: Answer


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Answers to one call by base row. Filled by `store`.

    call: its index. answers: as given; None where not asked (yet). stages: which asked, by name.
    texts: of the answers that are one. asked: the base rows that were asked. lost: those without
    an answer. failed: those that have no value, for this or another reason.
    """

    call: int
    answers: Objects
    stages: Objects
    texts: Objects
    asked: Bools
    lost: Bools
    failed: Bools

    @classmethod
    def none_yet(cls, call: int, rows: int) -> Values:
        """Nothing asked."""
        none, no = np.full(rows, None, dtype=object), np.zeros(rows, np.bool_)
        return cls(call, none, none.copy(), none.copy(), no, no.copy(), no.copy())

    def store(
        self, replies: Replies, rows: Int64s, sampling: Sampling, stage: str
    ) -> list[Failure]:
        """Keep the answers of some base rows, and give those that were lost."""
        read = [_read(answer, sampling) for answer in replies.answers]
        answers, texts, troubles = (
            np.array([*column, None], dtype=object)[replies.of_row]
            for column in (replies.answers, [one[0] for one in read], [one[1] for one in read])
        )
        lost = np.array([trouble is not None for trouble in troubles], dtype=np.bool_)
        self.asked[rows], self.lost[rows], self.failed[rows] = True, lost, lost
        self.answers[rows], self.stages[rows], self.texts[rows] = answers, stage, texts
        return [
            Failure(self.call, int(rows[at]), stage, troubles[at], answers[at])
            for at in np.flatnonzero(lost)
        ]

    def fail(self, row: int, trouble: str, stage: str) -> Failure:
        """Count what a row reads as no value. stage: for a row that was not asked."""
        self.failed[row] = True
        answer = self.answers[row] or _NOT_ASKED
        return Failure(self.call, row, self.stages[row] or stage, trouble, answer)


_NOT_ASKED = Answer(None, Finish.STOP, attempts=0)


def _read(answer: Answer, sampling: Sampling) -> tuple[str | None, str | None]:
    """(text, what is wrong) of an answer."""
    trouble = problem(answer, sampling)
    if trouble is not None or answer.text is None:
        return None, trouble
    # A database takes no lone surrogates.
    return answer.text.encode("utf-8", "replace").decode(), None
