"""Answers one call for all its rows: looks in the ledger, orders the rest, asks the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc

from relquery.arrays import Int64s
from relquery.errors import UnusableAnswersError
from relquery.prompt import Answer
from relquery.reordering.schedule import Schedule
from relquery.sql.caching import OrderedInputs, ordered
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.dispatch import (
    AS_WRITTEN,
    NO_ANSWER,
    CacheLookup,
    CallDispatch,
    ask_again,
)
from relquery.sql.executor.guard import OrderAgreement, compare
from relquery.sql.executor.reading import check_complete
from relquery.sql.inputs.inputs import Question

_Input = tuple[str | None, ...]
_MOST_SHARED = 1024  # distinct answers; a million that are Yes or No take a few megabytes


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """The answers to a call. answers: one per distinct input.

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
    comparison: OrderAgreement | None = None

    @property
    def spent(self) -> dict[str, Any]:
        """What the answers that were asked for have taken; those of the ledger took no attempt."""
        names = "prompt_tokens", "cached_tokens", "output_tokens", "attempts"
        asked = [answer for answer in self.paid if answer.attempts]
        return {name: sum(getattr(answer, name) for answer in asked) for name in names}

    def usd(self, price: Callable[[Answer], float | None]) -> float | None:
        """What they have cost; None without a price. price: of an answer."""
        costs = [price(answer) for answer in self.paid if answer.attempts]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known else None


def ask(
    question: Question, context: ExecutionContext, comparison: OrderAgreement | None = None
) -> Replies:
    """Answer a call for every row; equal inputs are asked once.

    If the config has a guard, answers to some inputs are compared first. comparison: an earlier one
    for this call, which then holds here too.

    Raises RequestError at the first failure if the config says so. Passes on whatever the backend
    raises; answers received before that are in the ledger.
    """
    dispatch, config = CallDispatch.of(question, context), context.config
    sent, new = None, None
    if config.guard is not None and comparison is None:
        sent = ordered(dispatch.inputs, dispatch.lookup.inputs, config.order, context.backend)
        new = comparison = compare(dispatch, sent.schedule)
    call = _CallAnswers.of(dispatch, is_pinned=comparison is not None and comparison.is_pinned)
    call.take(new)
    try:
        schedule = call.ask_missing(sent)
    except UnusableAnswersError:  # a second try goes before the end of all
        if not (question.task.retry and call.ask_again()):
            raise
        schedule = call.ask_missing(None)
    if question.task.retry:
        call.ask_again()
    return Replies(
        call.answers,
        dispatch.inputs.of_row,
        [*call.answers, *call.unused],
        dispatch.sent,
        dispatch.known,
        schedule.report.seconds if schedule else 0.0,
        float(schedule.report.phr) if schedule else 0.0,
        comparison,
    )


@dataclass(slots=True)
class _CallAnswers:
    """The answers to a call whose order of fields is decided, by input.

    is_pinned: whether fields are sent as written. missing: the inputs to ask. unused: answers of a
    guard that count for nothing but its verdict. shared: answers of which equal ones are held once.
    retried: inputs that were asked once more.
    """

    dispatch: CallDispatch
    is_pinned: bool
    lookup: CacheLookup
    answers: list[Answer]
    missing: Int64s
    unused: list[Answer] = field(default_factory=list)
    shared: dict[Answer, Answer] = field(default_factory=dict)
    retried: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, dispatch: CallDispatch, *, is_pinned: bool) -> _CallAnswers:
        """With the answers of the ledger."""
        lookup = dispatch.lookup.marked(AS_WRITTEN) if is_pinned else dispatch.lookup
        answers = [lookup.known.get(row, NO_ANSWER) for row in range(dispatch.inputs.count)]
        return cls(dispatch, is_pinned, lookup, answers, lookup.lacks(lookup.inputs))

    def take(self, compared: OrderAgreement | None) -> None:
        """Take the answers of a guard that count; an answer that the ledger has for a row stays,
        unless the order is pinned.
        """
        new, count = dict[int, Answer](), len(self.answers)
        if compared is not None:
            known = () if self.is_pinned else self.lookup.known
            new = {row: answer for row, answer in compared.chosen.items() if row not in known}
            self.unused = compared.others(new)
            self.missing = np.setdiff1d(self.missing, compared.inputs)
            count -= len(compared.inputs)
        self.dispatch.note_known(count - len(self.missing))
        self.dispatch.lookup.copy(new)
        for row, answer in new.items():
            self._put(row, answer)

    def ask_missing(self, sent: OrderedInputs | None) -> Schedule | None:
        """Ask the inputs that are missing. sent: all, in their order, or None; returns theirs."""
        dispatch, inputs, context = self.dispatch, self.dispatch.inputs, self.dispatch.context
        if self.is_pinned:
            rows = inputs.sorted(self.missing)
            sent = OrderedInputs(rows, inputs.schedule(rows, "original"), None)
        elif sent is None or sent.schedule is None:
            sent = ordered(inputs, self.missing, context.config.order, context.backend)
        else:
            sent = sent.part(self.missing)
        try:
            dispatch.send(sent.rows, sent.schedule, self.lookup, self._put, sent.plan)
        except UnusableAnswersError:
            self.missing = np.array(
                [row for row in self.missing.tolist() if self.answers[row] is NO_ANSWER], np.int64
            )
            dispatch.sent -= len(self.missing)
            raise
        finally:
            if self.is_pinned:
                dispatch.lookup.copy({row: self.answers[row] for row in sent.rows.tolist()})
        return sent.schedule

    def ask_again(self) -> bool:
        """Ask once more where an answer is not a valid value; whether a new one can be read."""
        dispatch, prompts = self.dispatch, self.dispatch.inputs.prompts_as_written()
        once = [
            NO_ANSWER if row in self.retried else answer for row, answer in enumerate(self.answers)
        ]
        answers = ask_again(prompts, once, dispatch.question.task, dispatch.context)
        for row, answer in answers.items():
            dispatch.sent += answer.attempts > self.answers[row].attempts
            self.answers[row] = answer
            self._check(row, answer)
        self.retried.update(answers)
        return any(answer.error is None for answer in answers.values())

    def _put(self, row: int, answer: Answer) -> None:
        hold = self.shared.setdefault if len(self.shared) < _MOST_SHARED else self.shared.get
        self.answers[row] = hold(answer, answer)
        if answer.text is None or not self.dispatch.question.task.retry:  # else asked once more
            self._check(row, answer)

    def _check(self, row: int, answer: Answer) -> None:
        question, config = self.dispatch.question, self.dispatch.context.config
        check_complete(answer, question, config, lambda: self.dispatch.inputs.cells(row))


@dataclass(slots=True)
class EarlierAnswers:
    """The questions of one call so far. Inputs are only compared once there is a second question.

    comparison: of answers in two orders; None if there was none.
    """

    comparison: OrderAgreement | None = None
    _asked: list[tuple[Question, Replies]] = field(default_factory=list)
    _answers: dict[_Input, Answer] = field(default_factory=dict)

    def split(self, question: Question) -> tuple[Int64s, Int64s, list[Answer]]:
        """(rows of a question whose input is new, the other rows, the answers to these)."""
        for earlier, replies in self._asked:
            asked, first = np.unique(replies.of_row, return_index=True)
            inputs = _inputs(earlier, first[asked >= 0])
            self._answers.update(zip(inputs, replies.answers, strict=True))
        self._asked = []
        every = np.arange(question.rows)
        if not self._answers:
            return every, every[:0], []
        answers = [self._answers.get(key) for key in _inputs(question, every)]
        is_known = np.array([answer is not None for answer in answers], dtype=np.bool_)
        known = [answer for answer in answers if answer is not None]
        return np.flatnonzero(~is_known), np.flatnonzero(is_known), known

    def add(self, question: Question, replies: Replies) -> None:
        """Remember the answers to a question."""
        self.comparison = replies.comparison
        if question.rows:
            self._asked.append((question, replies))


def _inputs(question: Question, rows: Int64s) -> list[_Input]:
    """The inputs of some rows. Cells that send the same text are equal, as in Inputs."""
    if not question.cells.forms:
        return [()] * len(rows)
    texts, columns = question.cells.part(rows).fetch(), []
    for cells, form in zip(texts.columns, question.cells.forms, strict=True):
        is_null = pc.equal(cells, "null")
        columns.append((pc.if_else(is_null, None, cells) if form == "json" else cells).to_pylist())
    return list(zip(*columns, strict=True))
