"""Answers calls that are each about several rows: a group's items, or candidates of a join.

A join condition can be a classification: for each row of one table, which of the other's match.

    a JOIN b ON AI_FILTER('Is {a.text} about {b.name}?', classify := true)
    =>  a call for each text, with the names as numbered candidates

A call answers many pairs, so 30 rows and 40 candidates take 30 calls and not 1,200. The model sees
the candidates together, so answers may differ from those for single pairs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.backends.base import Backend
from relquery.errors import RequestError
from relquery.ir.lower import lower
from relquery.ir.nodes import Seq, Text
from relquery.prompt import Answer, Finish, Prompt, Role, Sampling
from relquery.reordering.encode import encode
from relquery.sql.binder.call import Task
from relquery.sql.executor.ask import Replies
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.dispatch import answer_prompts
from relquery.sql.executor.reading import check_complete, failure_message, problem
from relquery.sql.inputs.cells import JSON, Cells, are_null
from relquery.sql.inputs.forest import Forest, halved
from relquery.sql.inputs.inputs import Question, distinct_rows
from relquery.sql.inputs.prompt import SYSTEM
from relquery.sql.types.leaves import Leaf, Number, dumped
from relquery.sql.types.shape import InvalidAnswerError, ListOf, Output

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

        given = answer_prompts(prompts, sampling, self.context, on_answer)
        self.given += given
        return given

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
        troubles = {index: _trouble_below(forest, index, given, task) for index in level}
        ready = [index for index, trouble in troubles.items() if trouble is None]
        prompts = [
            forest.prompt(index, [given[child].text or "" for child in forest.trees[index].below])
            for index in ready
        ]
        given.update(zip(ready, rounds.answers(prompts, task.sampling), strict=True))
        given.update(
            (index, _failed(f"A part of the group: {trouble}"))
            for index, trouble in troubles.items()
            if trouble is not None
        )
    if context.config.on_error == "raise" and None in forest.roots:
        raise RequestError(failure_message(question.name, {}, forest.trouble))
    refused = _failed(forest.trouble)
    return rounds.replies(
        [refused if index is None else given[index] for index in forest.roots], of_row
    )


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
    for answer in (given[child] for child in forest.trees[at].below):
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
    for index, size in enumerate(matches.sizes):
        by_size.setdefault(size, []).append(index)
    given: dict[int, Answer] = {}
    for size, calls in by_size.items():  # calls with as many candidates have one form of answer
        sampling = replace(task.sampling, schema=numbers_up_to(size).schema)
        answers = rounds.answers([matches.prompts[index] for index in calls], sampling)
        given.update(zip(calls, answers, strict=True))
    read = {index: _numbers(answer, matches.sizes[index], task) for index, answer in given.items()}
    replies = []
    for index, number in matches.place:
        numbers, trouble = read[index]
        if trouble is not None:
            replies.append(Answer(given[index].text, Finish.ERROR, trouble))
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


MOST_CANDIDATES = 50
"""Candidates of one call."""


def numbers_up_to(candidates: int) -> Output:
    """The type of an answer: numbers of candidates."""
    number = Leaf("INTEGER", least=1, most=candidates)
    return Output(ListOf(number, distinct=True, most=candidates))


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The calls for some pairs of rows.

    sizes: the candidates of each distinct call. of_row: (rows,), the distinct pair of each row; -1
    for rows that are not asked, as in Inputs. place: for each distinct pair, (its call, the number
    of its candidate, from 1). prompts: of the calls.
    """

    sizes: list[int]
    of_row: Int64s
    place: list[tuple[int, int]]
    prompts: list[Prompt]

    @classmethod
    def of(cls, task: Task, cells: Cells, backend: Backend) -> Matches:
        """Lay out the calls. The side with candidates is the one that leaves the fewest calls."""
        table = cells.fetch()
        skipped = np.full(table.num_rows, task.nulls == "skip")
        for form, column in zip(cells.forms, table.columns, strict=True):
            skipped &= are_null(column, form)
        table, of_row = table.filter(~skipped), np.full(table.num_rows, -1)
        sides = [_side(table, cells, task, side) for side in (0, 1)]
        pairs = np.stack([rows for _, rows in sides], axis=1)
        first, of_row[~skipped] = distinct_rows(pairs)
        given = _side_of_candidates(pairs[first])
        pairs = pairs[first][:, [1 - given, given]]
        (asked_texts, _), (candidate_texts, _) = sides[1 - given], sides[given]

        def prompt(asked: int, candidates: Sequence[int]) -> Prompt:
            listed = [candidate_texts[candidate] for candidate in candidates]
            return _prompt(task.prompt, asked_texts[asked], listed)

        def fits(asked: int, candidates: tuple[int, ...]) -> bool:
            counts = backend.insight.prompt_tokens([prompt(asked, candidates)], task.sampling)
            return counts is None or counts[0] > 0

        by_asked, most = dict[int, list[int]](), MOST_CANDIDATES
        for asked, candidate in sorted(pairs.tolist()):
            by_asked.setdefault(asked, []).append(candidate)
        # Those with the same candidates follow each other, and share them.
        calls = sorted(
            (part, asked)
            for asked, candidates in by_asked.items()
            for start in range(0, len(candidates), most)
            for part in halved(tuple(candidates[start : start + most]), partial(fits, asked))
        )
        where = {
            (asked, candidate): (index, number)
            for index, (part, asked) in enumerate(calls)
            for number, candidate in enumerate(part, 1)
        }
        place = [where[asked, candidate] for asked, candidate in pairs.tolist()]
        prompts = [prompt(asked, part) for part, asked in calls]
        return cls([len(part) for part, _ in calls], of_row, place, prompts)


def _side(table: pa.Table, cells: Cells, task: Task, side: int) -> tuple[list[str], Int64s]:
    """(the fields of each distinct row of one table as sent, the distinct row of each row)."""
    fields = [index for index, side_of_field in enumerate(task.sides) if side_of_field == side]
    table = table.select(fields)
    first, of_row = distinct_rows(encode(table).codes.reshape(table.num_rows, len(fields)))
    columns = []
    for index, column in zip(fields, table.take(pa.array(first)).columns, strict=True):
        write = partial(JSON.piece, JSON.label(cells.names[index]), cells.forms[index])
        columns.append(map(write, column.to_pylist()))
    return list(map(JSON.separator.join, zip(*columns, strict=True))), of_row


def _side_of_candidates(pairs: Int64s) -> int:
    """The side with at most 50 rows whose choice takes the fewest calls; else the smaller one."""
    sizes = pairs.max(axis=0, initial=-1) + 1
    few = [side for side in (0, 1) if sizes[side] <= MOST_CANDIDATES]
    return min(few or (0, 1), key=lambda side: sizes[1 - side] if few else sizes[side])


def _prompt(question: str, asked: str, candidates: Sequence[str]) -> Prompt:
    listing = "\n".join(
        f"{number}. {{{candidate}}}".replace(JSON.separator, ", ")
        for number, candidate in enumerate(candidates, 1)
    )
    head = (
        f"Answer the below query for each candidate:\n{question}\n"
        "Answer in JSON with the numbers of all candidates for which the answer is yes, e.g. "
        f'{{"answer": [1, 3]}}.\n\nCandidates:\n{listing}\n\nGiven the following data:\n{{\n'
    )
    return lower(Seq((Text(SYSTEM, Role.SYSTEM), Text(head), Text(f"{asked}\n}}"))))
