"""Answers one call for all its rows: looks in the ledger, orders the rest, asks the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from relquery.arrays import Int64s
from relquery.backends.base import Answers, Backend, Heard, cancelling
from relquery.config import QueryConfig
from relquery.errors import RequestError
from relquery.ledger import Keys, Ledger, has_one_answer, look_up, saving
from relquery.prompt import Answer, Finish
from relquery.sql.execute.inputs import Inputs, Question
from relquery.sql.execute.reading import problem, short
from relquery.sql.plan.planner import PlannedCall

Progress = Callable[[str, int, int], None]

_SHOWN_FIELDS = 3


@dataclass(frozen=True, slots=True)
class Asker:
    """What answers calls, and with which settings. clock: seconds from any start, for reports."""

    backend: Backend
    config: QueryConfig
    ledger: Ledger | None
    progress: Progress | None
    clock: Callable[[], float]

    @property
    def names(self) -> tuple[str, ...]:
        """The model names used in the ledger. An in-memory ledger has only one model."""
        is_lasting = self.ledger is not None and self.ledger.path is not None
        return self.backend.known_as() if is_lasting else (self.backend.name,)

    def modules(self, call: PlannedCall) -> tuple[int, ...]:
        """Which fields of a call are modules, where the backend has them; opens it if there are."""
        return call.modules if call.modules and self.backend.has_modules else ()


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """answers: one per distinct input; of_row: (rows,), index of each row's answer.

    sent: the number of requests. others: answers that led to these, and are counted with them.
    """

    answers: list[Answer]
    of_row: Int64s
    sent: int
    solver_seconds: float
    phr: float
    others: tuple[Answer, ...] = ()


def ask(question: Question, asker: Asker) -> Replies:
    """Answer a call for every row; equal inputs are asked once.

    Raises RequestError at the first failure if the config says so. Passes on whatever the backend
    raises; answers received before that are in the ledger.
    """
    inputs = Inputs.of(question)
    ledger = asker.ledger if has_one_answer(question.task.sampling) else None
    answers: dict[int, Answer] = {}
    keys: Keys | None = None
    if ledger is not None:
        prompts = inputs.prompts_as_written()
        keys, answers = look_up(ledger, asker.names, prompts, question.task.sampling)
    total = inputs.count
    if asker.progress is not None:  # finding an order can take a while, so report progress first
        asker.progress(question.name, len(answers), total)
    missing = np.array([row for row in range(inputs.count) if row not in answers], dtype=np.int64)
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
            answers[row] = answer
            if asker.config.on_error == "raise":
                _check(answer, question, inputs, row)
            if asker.progress is not None:
                asker.progress(question.name, len(answers), total)
    return Replies(
        [answers.get(row, _NO_ANSWER) for row in range(total)],
        inputs.of_row,
        len(sent),
        schedule.report.seconds if schedule else 0.0,
        float(schedule.report.phr) if schedule else 0.0,
    )


_NO_ANSWER = Answer(None, Finish.ERROR, "The backend gave no answer.")


def failed(stage: str, inputs: Mapping[str, str | None], trouble: str) -> str:
    """What stopped a query: the stage, the inputs of one of its rows, and the problem."""
    cells = [f"{name} = {short(cell)}" for name, cell in inputs.items()]
    more = f" and {len(cells) - _SHOWN_FIELDS} more" if len(cells) > _SHOWN_FIELDS else ""
    row = f" for {', '.join(cells[:_SHOWN_FIELDS])}{more}" if cells else ""
    return f"{stage}{row}: {trouble}"


def _check(answer: Answer, question: Question, inputs: Inputs, index: int) -> None:
    trouble = problem(answer, question.task.sampling)
    if trouble is not None:
        (row,) = question.cells.slice(inputs.row_of(index), 1).to_pylist() or [{}]
        raise RequestError(failed(question.name, row, trouble))


@contextmanager
def _keeping(ledger: Ledger | None, keys: Keys | None, sent: Int64s) -> Iterator[Heard]:
    """Yields a function that stores an answer in the ledger; its index is that in `sent`."""
    if ledger is None or keys is None or not len(sent):
        yield lambda index, answer: None
        return
    with saving(ledger) as keep:

        def keep_answer(index: int, answer: Answer) -> None:
            keep(keys.place(int(sent[index]), answer), answer)

        yield keep_answer
