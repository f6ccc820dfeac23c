"""Answers one call for all its rows: looks in the ledger, orders the rest, asks the backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc

from relquery.arrays import Int64s
from relquery.errors import RequestError
from relquery.prompt import Answer
from relquery.sql.caching.plan import ordered
from relquery.sql.executor.answered import Asker, asked_again, failed
from relquery.sql.executor.guard import Both, Verdict, compare
from relquery.sql.executor.kept import Kept, Spent
from relquery.sql.executor.reading import problem
from relquery.sql.executor.sending import AS_WRITTEN, Sending, Shelf
from relquery.sql.inputs.inputs import Question
from relquery.table.schedule import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """answers: one per distinct input; of_row: (rows,), index of each row's answer, or -1 as in
    Inputs. spent: what
    the answers have taken. sent: the number of requests. known: how many the ledger answered.
    verdict: whether fields are sent as written; None if no answers were compared.
    """

    answers: Sequence[Answer]
    of_row: Int64s
    spent: Spent
    sent: int
    known: int = 0
    solver_seconds: float = 0.0
    phr: float = 0.0
    verdict: Verdict | None = None


def ask(question: Question, asker: Asker, verdict: Verdict | None = None) -> Replies:
    """Answer a call for every row; equal inputs are asked once.

    If the config has a guard, answers to some inputs are compared first. verdict: of an earlier
    comparison for this call, which then holds here too.

    Raises RequestError at the first failure if the config says so. Passes on whatever the backend
    raises; answers received before that are in the ledger.
    """
    sending = Sending.of(question, asker)
    schedule, both = None, None
    if asker.config.guard is not None and verdict is None:
        every, order = sending.every, asker.config.order
        schedule = ordered(sending.inputs, every, order, asker.backend).schedule
        both = compare(sending, schedule)
        verdict = None if both is None else both.verdict
    asking = _Asking.of(sending, both, is_pinned=verdict is not None and verdict.is_pinned)
    schedule = asking.ask_rest(schedule)
    if question.task.retry:
        asking.ask_again()
    return Replies(
        asking.answers,
        sending.inputs.of_row,
        asking.answers.spent.plus(Spent.of(asking.unused)),
        sending.sent,
        sending.known,
        schedule.report.seconds if schedule else 0.0,
        float(schedule.report.phr) if schedule else 0.0,
        verdict,
    )


@dataclass(slots=True)
class _Asking:
    """A call whose order of fields is decided.

    is_pinned: whether fields are sent as written. missing: the inputs to ask. unused: answers of a
    guard that count for nothing but its verdict.
    """

    sending: Sending
    shelf: Shelf
    is_pinned: bool
    answers: Kept
    missing: Int64s
    unused: list[Answer]

    @classmethod
    def of(cls, sending: Sending, both: Both | None, *, is_pinned: bool) -> _Asking:
        """With the answers of the ledger and of a guard.

        An answer that the ledger has for a row stays, unless the order is pinned.
        """
        shelf = sending.shelf(AS_WRITTEN if is_pinned else None)
        new = {} if both is None else both.chosen
        if not is_pinned:
            new = {row: answer for row, answer in new.items() if row not in shelf.known}
        answers, is_missing = Kept.none_yet(sending.inputs.count), np.ones(len(sending.every), bool)
        for row, answer in (shelf.known | new).items():
            answers.put(row, answer)
            is_missing[row] = False
        sampled = 0
        if both is not None:
            is_missing[both.inputs] = False
            sampled = len(both.inputs)
        missing = np.flatnonzero(is_missing)
        sending.note_known(sending.inputs.count - sampled - len(missing))
        sending.copy(new)
        asking = cls(sending, shelf, is_pinned, answers, missing, both.others(new) if both else [])
        for row, answer in new.items():
            asking.check(row, answer)
        return asking

    def ask_rest(self, schedule: Schedule | None) -> Schedule | None:
        """Ask the inputs that are missing. schedule: of all, or None; returns that of these."""
        inputs, asker, plan = self.sending.inputs, self.sending.asker, None
        if self.is_pinned:
            rows = inputs.sorted(self.missing)
            schedule = inputs.schedule(rows, "original")
        elif schedule is None:  # as it is without a guard
            sent = ordered(inputs, self.missing, asker.config.order, asker.backend)
            rows, schedule, plan = sent.rows, sent.schedule, sent.plan
        else:
            schedule = schedule.part(np.flatnonzero(np.isin(schedule.rows, self.missing)))
            rows = schedule.rows
        try:
            self.sending.send(rows, schedule, self.shelf, self._put, plan)
        finally:
            if self.is_pinned:
                self.sending.copy({row: self.answers[row] for row in rows.tolist()})
        return schedule

    def ask_again(self) -> None:
        """Ask once more where an answer is not a valid value."""
        sending, task = self.sending, self.sending.question.task
        prompts = sending.inputs.prompts_as_written()
        for row, answer in asked_again(prompts, self.answers, task, sending.asker).items():
            sending.sent += answer.attempts > self.answers[row].attempts
            self.answers.put(row, answer)

    def _put(self, row: int, answer: Answer) -> None:
        self.answers.put(row, answer)
        self.check(row, answer)

    def check(self, row: int, answer: Answer) -> None:
        """Raises RequestError for an answer that is not complete, if the config says so."""
        asker, question = self.sending.asker, self.sending.question
        if asker.config.on_error != "raise":
            return
        if (trouble := problem(answer, question.task.sampling)) is not None:
            cells = self.sending.inputs.cells(row)
            raise RequestError(failed(question.name, cells, trouble))


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
