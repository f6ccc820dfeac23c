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
from relquery.sql.execute.answered import answered
from relquery.sql.execute.ask import Asker, Replies, failed
from relquery.sql.execute.forest import Forest
from relquery.sql.execute.inputs import Question
from relquery.sql.execute.reading import problem
from relquery.sql.functions.task import Task
from relquery.sql.types.leaves import Number, dumped

Answered = Callable[[list[Prompt]], list[Answer]]
"""Answers prompts, in their order."""


def ask_groups(question: Question, asker: Asker) -> Replies:
    """Answer a call for every group; equal groups, and equal parts of groups, are asked once.

    Raises as `ask` does.
    """
    task = question.task
    grouped = Grouped.of(task, question.cells.column(0), asker.backend)
    total, done, sent = len(grouped.forest.trees), 0, 0

    def heard(index: int, answer: Answer) -> None:
        nonlocal done
        done += 1
        if asker.config.on_error == "raise" and (trouble := problem(answer, task.sampling)):
            raise RequestError(failed(question.name, {}, trouble))
        if asker.progress is not None:
            asker.progress(question.name, done, total)

    def answers(prompts: list[Prompt]) -> list[Answer]:
        nonlocal done, sent
        given = answered(prompts, task.sampling, asker, heard)
        sent += sum(answer.attempts > 0 for answer in given)
        done += sum(answer.attempts == 0 for answer in given)
        return given

    if asker.progress is not None:
        asker.progress(question.name, 0, total)
    roots, others = grouped.answers(task, answers)
    return Replies(roots, grouped.of_row, sent, 0.0, 0.0, tuple(others))


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
        forest = Forest.of(task.prompt, groups, task.sampling, backend)
        return cls(forest, np.array([numbers[text] for text in texts], np.int64))

    def answers(self, task: Task, answers: Answered) -> tuple[list[Answer], list[Answer]]:
        """(the answer for each distinct group, all answers on the way to them)."""
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
        roots = [given[at] for at in self.forest.roots]
        return roots, [answer for at, answer in given.items() if at not in self.forest.roots]

    def _trouble(self, at: int, given: dict[int, Answer], task: Task) -> str | None:
        """Why an answer that a call reads is missing; None if all are there."""
        below = (problem(given[one], task.sampling) for one in self.forest.trees[at].below)
        return next((trouble for trouble in below if trouble is not None), None)


def _texts(grouped: Grouped, at: int, given: dict[int, Answer]) -> list[str]:
    return [given[one].text or "" for one in grouped.forest.trees[at].below]


def _items(text: str | None) -> Sequence[str]:
    """The items of a list as JSON texts, their numbers as they were written."""
    if text is None:
        return ()
    return [dumped(item) for item in json.loads(text, parse_int=Number, parse_float=Number)]
