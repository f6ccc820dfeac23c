"""Answers one call for all its rows: looks in the ledger, orders the rest, asks the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from relquery.arrays import Int64s
from relquery.backends.base import Answers, Backend, Heard, cancelling
from relquery.config import QueryConfig
from relquery.errors import RequestError
from relquery.ledger import Keys, Ledger, has_one_answer, look_up, saving
from relquery.prompt import Answer, Finish, Sampling
from relquery.sql.execute.inputs import Inputs, Question
from relquery.sql.execute.kept import Kept, Spent
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
    """answers: one per distinct input; of_row: (rows,), index of each row's answer. spent: what
    the answers have taken."""

    answers: Sequence[Answer]
    of_row: Int64s
    spent: Spent
    sent: int
    solver_seconds: float
    phr: float


def ask(question: Question, asker: Asker) -> Replies:
    """Answer a call for every row; equal inputs are asked once.

    Raises RequestError at the first failure if the config says so. Passes on whatever the backend
    raises; answers received before that are in the ledger.
    """
    inputs = Inputs.of(question)
    ledger = asker.ledger if has_one_answer(question.sampling) else None
    answers = Kept.none_yet(inputs.count)
    is_missing = np.ones(inputs.count, np.bool_)
    keys: Keys | None = None
    if ledger is not None:
        prompts = inputs.prompts_as_written()
        keys, known = look_up(ledger, asker.names, prompts, question.sampling)
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
            stream = asker.backend.deliver(prompts, question.sampling, keep)
            open_.enter_context(cancelling(stream))
        for index, answer in stream:
            row = int(sent[index])
            answers.put(row, answer)
            done += 1
            if asker.config.on_error == "raise":
                _check(answer, question, inputs, row)
            if asker.progress is not None:
                asker.progress(question.name, done, total)
    return Replies(
        answers,
        inputs.of_row,
        answers.spent,
        len(sent),
        schedule.report.seconds if schedule else 0.0,
        float(schedule.report.phr) if schedule else 0.0,
    )


def problem(answer: Answer, sampling: Sampling) -> str | None:
    """Why an answer has no valid value; None if it has one."""
    if answer.error is not None:
        return answer.error
    if answer.finish is Finish.LENGTH:
        return (
            f"The answer was cut off after {answer.output_tokens} tokens: {_short(answer.text)}. "
            f"Raise max_tokens (now {sampling.max_tokens}) or ask for a shorter answer."
        )
    if answer.finish not in (Finish.STOP, Finish.DECIDED) or answer.text is None:
        return f"The request ended without an answer ({answer.finish.value})."
    return None


def failed(stage: str, inputs: Mapping[str, str | None], trouble: str) -> str:
    """What stopped a query: the stage, the inputs of one of its rows, and the problem."""
    cells = [f"{name} = {_short(cell)}" for name, cell in inputs.items()]
    more = f" and {len(cells) - _SHOWN_FIELDS} more" if len(cells) > _SHOWN_FIELDS else ""
    row = f" for {', '.join(cells[:_SHOWN_FIELDS])}{more}" if cells else ""
    return f"{stage}{row}: {trouble}"


def _check(answer: Answer, question: Question, inputs: Inputs, index: int) -> None:
    trouble = problem(answer, question.sampling)
    if trouble is not None:
        raise RequestError(failed(question.name, inputs.cells(index), trouble))


def _short(text: str | None) -> str:
    """The text in quotes, shortened if it is long; `NULL` if there is none."""
    if text is None:
        return "NULL"
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


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
