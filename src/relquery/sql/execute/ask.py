"""Answers one call for all its rows: looks in the ledger, orders the rest, asks the backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from relquery.arrays import Int64s
from relquery.backends.base import Answers, Heard, cancelling
from relquery.errors import RequestError
from relquery.ledger import Keys, Ledger, has_one_answer, look_up, saving
from relquery.prompt import Answer
from relquery.sql.execute.asker import Asker, failed
from relquery.sql.execute.kept import Kept, Spent
from relquery.sql.execute.reading import problem
from relquery.sql.execute.retry import asked_again
from relquery.sql.inputs.inputs import Inputs, Question


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """answers: one per distinct input; of_row: (rows,), index of each row's answer. spent: what
    the answers have taken. sent: the number of requests. known: how many the ledger answered.
    """

    answers: Sequence[Answer]
    of_row: Int64s
    spent: Spent
    sent: int
    known: int = 0
    solver_seconds: float = 0.0
    phr: float = 0.0


def ask(question: Question, asker: Asker) -> Replies:
    """Answer a call for every row; equal inputs are asked once.

    Raises RequestError at the first failure if the config says so. Passes on whatever the backend
    raises; answers received before that are in the ledger.
    """
    inputs = Inputs.of(question)
    ledger = asker.ledger if has_one_answer(question.task.sampling) else None
    answers = Kept.none_yet(inputs.count)
    is_missing = np.ones(inputs.count, np.bool_)
    keys: Keys | None = None
    if ledger is not None:
        prompts = inputs.prompts_as_written()
        keys, known = look_up(ledger, asker.names, prompts, question.task.sampling)
        for row, answer in known.items():
            answers.put(row, answer)
            is_missing[row] = False
    missing, total = np.flatnonzero(is_missing), inputs.count
    done = total - len(missing)
    if asker.progress is not None:  # finding an order can take a while, so report progress first
        asker.progress(question.name, done, total)
    schedule = inputs.schedule(missing, asker.config.order)
    sent = missing if schedule is None else missing[schedule.rows]
    prompts = inputs.prompts(sent, schedule)
    # Closes immediately if something raises here, so the backend stops working on the rest.
    with _keeping(ledger, keys, sent) as keep, ExitStack() as open_:
        stream: Answers = iter(())
        if prompts:
            stream = asker.backend.deliver(prompts, question.task.sampling, keep)
            open_.enter_context(cancelling(stream))
        for index, answer in stream:
            row = int(sent[index])
            answers.put(row, answer)
            done += 1
            if asker.config.on_error == "raise":
                _check(answer, question, inputs, row)
            if asker.progress is not None:
                asker.progress(question.name, done, total)
    asked = len(sent)
    if question.task.retry:
        again = asked_again(inputs.prompts_as_written(), answers, question.task, asker)
        for row, answer in again.items():
            asked += answer.attempts > answers[row].attempts
            answers.put(row, answer)
    return Replies(
        answers,
        inputs.of_row,
        answers.spent,
        asked,
        total - len(missing),
        schedule.report.seconds if schedule else 0.0,
        float(schedule.report.phr) if schedule else 0.0,
    )


def _check(answer: Answer, question: Question, inputs: Inputs, index: int) -> None:
    trouble = problem(answer, question.task.sampling)
    if trouble is not None:
        raise RequestError(failed(question.name, inputs.cells(index), trouble))


@contextmanager
def _keeping(ledger: Ledger | None, keys: Keys | None, sent: Int64s) -> Iterator[Heard]:
    """Yields a function that stores an answer in the ledger; its index is that in `sent`."""
    if ledger is None or keys is None or not len(sent):
        yield lambda index, answer: None
        return
    with saving(ledger) as keep:

        def keep_answer(index: int, answer: Answer) -> None:
            keep(*keys.entry(int(sent[index]), answer))

        yield keep_answer
