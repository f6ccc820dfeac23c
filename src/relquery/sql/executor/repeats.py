"""Answers to one call by input, so that inputs that come again later are not asked again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc

from relquery.arrays import Int64s
from relquery.prompt import Answer
from relquery.sql.executor.ask import Replies
from relquery.sql.executor.guard.verdict import Verdict
from relquery.sql.executor.kept import Spent
from relquery.sql.inputs.inputs import Question

_Input = tuple[str | None, ...]


@dataclass(slots=True)
class Repeats:
    """What one call has asked so far. Inputs are only compared once there is a second question.

    verdict: of the comparison of answers in two orders; None if there was none.
    """

    verdict: Verdict | None = None
    _asked: list[tuple[Question, Replies]] = field(default_factory=list)
    _answers: dict[_Input, Answer] = field(default_factory=dict)

    def split(self, question: Question) -> tuple[Int64s, Int64s, list[Answer]]:
        """(rows of a question whose input is new, the other rows, the answers to these)."""
        for earlier, replies in self._asked:
            asked, first = np.unique(replies.of_row, return_index=True)
            first = first[asked >= 0]
            inputs = _inputs(earlier, first)
            self._answers.update(zip(inputs, replies.answers, strict=True))
        self._asked = []
        every = np.arange(question.rows)
        if not self._answers:
            return every, every[:0], []
        found = [self._answers.get(one) for one in _inputs(question, every)]
        is_known = np.array([answer is not None for answer in found], dtype=np.bool_)
        known = [answer for answer in found if answer is not None]
        return np.flatnonzero(~is_known), np.flatnonzero(is_known), known

    def add(self, question: Question, replies: Replies) -> None:
        """Remember the answers to a question."""
        self.verdict = replies.verdict
        if question.rows:
            self._asked.append((question, replies))


def part_of(question: Question, rows: Int64s) -> Question:
    """The question for some of its rows."""
    if len(rows) == question.rows:
        return question
    return replace(question, rows=len(rows), cells=question.cells.part(rows))


def repeated(answers: list[Answer]) -> Replies:
    """Replies that were given before."""
    return Replies(answers, np.arange(len(answers)), Spent(0, 0, 0, 0), 0, 0)


def _inputs(question: Question, rows: Int64s) -> list[_Input]:
    """The inputs of some rows. Cells that send the same text are equal, as in Inputs."""
    if not question.cells.forms:
        return [()] * len(rows)
    columns = []
    texts = question.cells.part(rows).fetch()
    for cells, form in zip(texts.columns, question.cells.forms, strict=True):
        is_null = pc.equal(cells, "null")
        columns.append((pc.if_else(is_null, None, cells) if form == "json" else cells).to_pylist())
    return list(zip(*columns, strict=True))
