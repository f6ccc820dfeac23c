"""Answers a call about groups of rows, whose field is the list of a group's items."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.backends.base import Backend
from relquery.errors import RequestError
from relquery.prompt import Answer, Finish, Prompt
from relquery.sql.binder.task import Task
from relquery.sql.executor.answered import Asker, answered, failed
from relquery.sql.executor.ask import Replies
from relquery.sql.executor.kept import Spent
from relquery.sql.executor.reading import problem
from relquery.sql.inputs.forest import Forest
from relquery.sql.inputs.inputs import Question
from relquery.sql.types.leaves import Number, dumped

Answered = Callable[[list[Prompt]], list[Answer]]
"""Answers prompts, in their order."""


def ask_groups(question: Question, asker: Asker) -> Replies:
    """Answer a call for every group; equal groups, and equal parts of groups, are asked once.

    Raises as `ask` does.
    """
    task = question.task
    grouped = Grouped.of(task, question.cells.fetch().column(0), asker.backend)
    total, given = len(grouped.forest.trees), list[Answer]()

    def heard(done: int, answer: Answer) -> None:
        if asker.config.on_error == "raise" and (trouble := problem(answer, task.sampling)):
            raise RequestError(failed(question.name, {}, trouble))
        if asker.progress is not None:
            asker.progress(question.name, len(given) + done, total)

    def answers(prompts: list[Prompt]) -> list[Answer]:
        level = answered(prompts, task.sampling, asker, heard)
        given.extend(level)
        return level

    if asker.progress is not None:
        asker.progress(question.name, 0, total)
    roots = grouped.answers(task, answers)
    if asker.config.on_error == "raise" and None in grouped.forest.roots:
        raise RequestError(failed(question.name, {}, grouped.forest.trouble))
    sent = sum(answer.attempts > 0 for answer in given)
    return Replies(roots, grouped.of_row, Spent.of(given), sent, len(given) - sent)


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """forest: the calls for the distinct groups. of_row: (rows,), the group of each row."""

    forest: Forest
    of_row: Int64s

    @classmethod
    def of(cls, task: Task, lists: pa.ChunkedArray, backend: Backend) -> Grouped:
        """The calls for some rows. lists: per row, the JSON text of a list of items."""
        texts = lists.to_pylist()
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        groups = [_items(text) for text in numbers]
        forest = Forest.of(task.prompt, groups, task.sampling, backend, task.form or "json")
        return cls(forest, np.array([numbers[text] for text in texts], np.int64))

    def answers(self, task: Task, answers: Answered) -> list[Answer]:
        """The answer for each distinct group."""
        given: dict[int, Answer] = {}
        for level in self.forest.levels():
            ready = [at for at in level if self._trouble(at, given, task) is None]
            prompts = [self.forest.prompt(at, _texts(self, at, given)) for at in ready]
            given.update(zip(ready, answers(prompts), strict=True))
            for at in set(level) - set(ready):
                trouble = self._trouble(at, given, task)
                given[at] = Answer(
                    None, Finish.ERROR, f"A part of the group: {trouble}", attempts=0
                )
        refused = Answer(None, Finish.ERROR, self.forest.trouble, attempts=0)
        return [refused if at is None else given[at] for at in self.forest.roots]

    def _trouble(self, at: int, given: dict[int, Answer], task: Task) -> str | None:
        """Why an answer that a call reads is missing; None if all are there."""
        # The beginning of an answer for a part says much of it, too.
        below = (
            problem(given[one], task.sampling)
            for one in self.forest.trees[at].below
            if given[one].finish is not Finish.LENGTH or given[one].text is None
        )
        return next((trouble for trouble in below if trouble is not None), None)


def _texts(grouped: Grouped, at: int, given: dict[int, Answer]) -> list[str]:
    return [given[one].text or "" for one in grouped.forest.trees[at].below]


def _items(text: str | None) -> Sequence[str]:
    """The items of a list as JSON texts, their numbers as they were written."""
    if text is None:
        return ()
    return [dumped(item) for item in json.loads(text, parse_int=Number, parse_float=Number)]
