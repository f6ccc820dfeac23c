"""From answers to values of rows: text, number, or a reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relquery.prompt import Answer, Sampling
from relquery.sql.ask import Replies, problem
from relquery.sql.numbers import parse_number
from relquery.table.columns import Int64s

Objects = npt.NDArray[np.object_]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Failure:
    """position: among the rows that were asked. trouble: why the answer is no value."""

    position: int
    trouble: str
    answer: Answer


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Answers to one call by base row; None where there is none (yet). Filled by `store`.

    asked: the base rows that were asked. failed: those whose answer is no value.
    """

    texts: Objects
    numbers: Objects
    asked: Flags
    failed: Flags

    @classmethod
    def none_yet(cls, rows: int) -> Values:
        """Nothing asked."""
        none = np.full(rows, None, dtype=object)
        return cls(none, none.copy(), np.zeros(rows, np.bool_), np.zeros(rows, np.bool_))

    def store(
        self, replies: Replies, rows: Int64s, sampling: Sampling, numeric: bool
    ) -> list[Failure]:
        """Keep the answers of some base rows, and give those that are no value."""
        read = [_read(answer, sampling, numeric) for answer in replies.answers]
        texts, numbers, troubles = (
            np.array([one[part] for one in read] or [None], dtype=object)[replies.of_row]
            for part in range(3)
        )
        failed = np.array([trouble is not None for trouble in troubles], dtype=np.bool_)
        self.asked[rows], self.failed[rows] = True, failed
        self.texts[rows], self.numbers[rows] = texts, numbers
        return [
            Failure(int(at), troubles[at], replies.answers[replies.of_row[at]])
            for at in np.flatnonzero(failed)
        ]


def _read(
    answer: Answer, sampling: Sampling, numeric: bool
) -> tuple[str | None, float | None, str | None]:
    """(text, number, what is wrong) of an answer."""
    trouble = problem(answer, sampling)
    if trouble is not None or answer.text is None:
        return None, None, trouble
    text = answer.text.encode("utf-8", "replace").decode()  # a database takes no lone surrogates
    number = parse_number(text) if numeric else None
    if numeric and number is None:
        trouble = (
            f"The answer is {text[:60]!r}; the query needs a number here. Ask for only a number "
            "in the prompt, or give labels := ['1', '2', ...]."
        )
    return text, number, trouble
