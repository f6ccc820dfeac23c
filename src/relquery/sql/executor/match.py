"""Answers a join condition by calls that each decide about many pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from relquery.errors import RequestError
from relquery.prompt import Answer, Finish
from relquery.sql.binder.task import Task
from relquery.sql.executor.answered import Asker, answered, failed
from relquery.sql.executor.ask import Replies
from relquery.sql.executor.kept import Spent
from relquery.sql.executor.reading import problem
from relquery.sql.inputs.inputs import Question
from relquery.sql.inputs.matches import Match, Matches, numbers_up_to
from relquery.sql.types.shape import InvalidAnswerError

Heard = Callable[[int, Answer], None]

_YES, _NO = (Answer(text, Finish.STOP, attempts=0) for text in ("Yes", "No"))


def ask_matches(question: Question, asker: Asker) -> Replies:
    """Answer a call for every pair. Raises as `ask` does."""
    task = question.task
    matches = Matches.of(task, question.cells, asker.backend)

    def heard(done: int, answer: Answer) -> None:
        if asker.config.on_error == "raise" and (trouble := problem(answer, task.sampling)):
            raise RequestError(failed(question.name, {}, trouble))
        if asker.progress is not None:
            asker.progress(question.name, done, len(matches.calls))

    if asker.progress is not None:
        asker.progress(question.name, 0, len(matches.calls))
    given = _given(matches, task, asker, heard)
    read = [_numbers(answer, call, task) for answer, call in zip(given, matches.calls, strict=True)]
    replies = []
    for call, number in matches.place:
        numbers, trouble = read[call]
        if trouble is not None:
            replies.append(Answer(given[call].text, Finish.ERROR, trouble))
        else:
            replies.append(_YES if number in numbers else _NO)
    sent = sum(answer.attempts > 0 for answer in given)
    return Replies(replies, matches.of_row, Spent.of(given), sent, len(given) - sent)


def _given(matches: Matches, task: Task, asker: Asker, heard: Heard) -> list[Answer]:
    """The answers to the calls. Calls with as many candidates have one form of answer."""
    by_size: dict[int, list[int]] = {}
    for at, call in enumerate(matches.calls):
        by_size.setdefault(len(call.candidates), []).append(at)
    given: dict[int, Answer] = {}
    for size, calls in by_size.items():
        sampling = replace(task.sampling, schema=numbers_up_to(size).schema)
        prompts = [matches.prompts[at] for at in calls]
        found = answered(prompts, sampling, asker, partial(_after, len(given), heard))
        given.update(zip(calls, found, strict=True))
    return [given[at] for at in range(len(matches.calls))]


def _after(before: int, heard: Heard, done: int, answer: Answer) -> None:
    heard(before + done, answer)


def _numbers(answer: Answer, call: Match, task: Task) -> tuple[frozenset[int], str | None]:
    """(the numbers of the candidates that match, problem)."""
    trouble = problem(answer, task.sampling)
    if trouble is not None or answer.text is None:
        return frozenset(), trouble
    try:
        return frozenset(map(int, numbers_up_to(len(call.candidates)).read(answer.text))), None
    except InvalidAnswerError as error:
        return frozenset(), f"{error} It is the number of a candidate."
