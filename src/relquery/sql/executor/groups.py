"""Answers calls that are each about several rows: a group's items, or candidates of a join."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.backends.base import Backend
from relquery.errors import RequestError
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.sql.binder.call import Task
from relquery.sql.executor.ask import Replies
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.dispatch import answer_prompts
from relquery.sql.executor.reading import check_complete, failure_message, problem
from relquery.sql.inputs.forest import Forest
from relquery.sql.inputs.inputs import Question
from relquery.sql.inputs.matches import Matches, numbers_up_to
from relquery.sql.types.leaves import Number, dumped
from relquery.sql.types.shape import InvalidAnswerError

_YES, _NO = (Answer(text, Finish.STOP, attempts=0) for text in ("Yes", "No"))


@dataclass(slots=True)
class _Rounds:
    """The prompts of a call while they are answered in rounds. total: of all rounds."""

    question: Question
    context: ExecutionContext
    total: int
    given: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context.tell(self.question.name, 0, self.total)

    def answers(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Answer]:
        """The answers of a round."""

        def on_answer(done: int, answer: Answer) -> None:
            check_complete(answer, self.question, self.context.config)
            self.context.tell(self.question.name, len(self.given) + done, self.total)

        found = answer_prompts(prompts, sampling, self.context, on_answer)
        self.given += found
        return found

    def replies(self, answers: Sequence[Answer], of_row: Int64s) -> Replies:
        """What is made of the answers of all rounds."""
        sent = sum(answer.attempts > 0 for answer in self.given)
        return Replies(answers, of_row, self.given, sent, len(self.given) - sent)


def ask_groups(question: Question, context: ExecutionContext) -> Replies:
    """Answer a call for every group; equal groups, and equal parts of groups, are asked once.

    Raises as `ask` does.
    """
    task, lists = question.task, question.cells.fetch().column(0)
    forest, of_row = forest_of(task, lists, context.backend)
    rounds, given = _Rounds(question, context, len(forest.trees)), dict[int, Answer]()
    for level in forest.levels():
        troubles = {at: _trouble_below(forest, at, given, task) for at in level}
        ready = [at for at, trouble in troubles.items() if trouble is None]
        prompts = [
            forest.prompt(at, [given[one].text or "" for one in forest.trees[at].below])
            for at in ready
        ]
        given.update(zip(ready, rounds.answers(prompts, task.sampling), strict=True))
        given.update(
            (at, _failed(f"A part of the group: {trouble}"))
            for at, trouble in troubles.items()
            if trouble is not None
        )
    if context.config.on_error == "raise" and None in forest.roots:
        raise RequestError(failure_message(question.name, {}, forest.trouble))
    refused = _failed(forest.trouble)
    return rounds.replies([refused if at is None else given[at] for at in forest.roots], of_row)


def forest_of(task: Task, lists: pa.ChunkedArray, backend: Backend) -> tuple[Forest, Int64s]:
    """(the calls for the distinct groups of some rows, the group of each row).

    lists: per row, the JSON text of a list of items.
    """
    texts = lists.to_pylist()
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    groups = list(map(_items, numbers))
    forest = Forest.of(task.prompt, groups, task.sampling, backend, task.form or "json")
    return forest, np.array([numbers[text] for text in texts], np.int64)


def _items(text: str | None) -> Sequence[str]:
    """The items of a list as JSON texts, their numbers as they were written."""
    if text is None:
        return ()
    return [dumped(item) for item in json.loads(text, parse_int=Number, parse_float=Number)]


def _trouble_below(forest: Forest, at: int, given: dict[int, Answer], task: Task) -> str | None:
    """Why an answer that a call reads is missing; None if all are there."""
    for answer in (given[one] for one in forest.trees[at].below):
        # The beginning of an answer for a part says much of it, too.
        is_begun = answer.finish is Finish.LENGTH and answer.text is not None
        if not is_begun and (trouble := problem(answer, task.sampling)) is not None:
            return trouble
    return None


def _failed(trouble: str) -> Answer:
    return Answer(None, Finish.ERROR, trouble, attempts=0)


def ask_matches(question: Question, context: ExecutionContext) -> Replies:
    """Answer a join condition for every pair by calls that each decide about many.

    Raises as `ask` does.
    """
    task = question.task
    matches = Matches.of(task, question.cells, context.backend)
    rounds = _Rounds(question, context, len(matches.sizes))
    by_size: dict[int, list[int]] = {}
    for at, size in enumerate(matches.sizes):
        by_size.setdefault(size, []).append(at)
    given: dict[int, Answer] = {}
    for size, calls in by_size.items():  # calls with as many candidates have one form of answer
        sampling = replace(task.sampling, schema=numbers_up_to(size).schema)
        found = rounds.answers([matches.prompts[at] for at in calls], sampling)
        given.update(zip(calls, found, strict=True))
    read = {at: _numbers(answer, matches.sizes[at], task) for at, answer in given.items()}
    replies = []
    for at, number in matches.place:
        numbers, trouble = read[at]
        if trouble is not None:
            replies.append(Answer(given[at].text, Finish.ERROR, trouble))
        else:
            replies.append(_YES if number in numbers else _NO)
    return rounds.replies(replies, matches.of_row)


def _numbers(answer: Answer, candidates: int, task: Task) -> tuple[frozenset[int], str | None]:
    """(the numbers of the candidates that match, problem)."""
    trouble = problem(answer, task.sampling)
    if trouble is not None or answer.text is None:
        return frozenset(), trouble
    try:
        return frozenset(map(int, numbers_up_to(candidates).read(answer.text))), None
    except InvalidAnswerError as error:
        return frozenset(), f"{error} It is the number of a candidate."
