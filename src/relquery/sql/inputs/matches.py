"""A join condition as a classification: for each row of one table, which of the other's match.

    a JOIN b ON AI_FILTER('Is {a.text} about {b.name}?', classify := true)
    =>  a call for each text, with the names as numbered candidates

A call answers many pairs, so 30 rows and 40 candidates take 30 calls and not 1,200. The model sees
the candidates together, so answers may differ from those for single pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.backends.base import Backend
from relquery.ir.lower import lower
from relquery.ir.nodes import Seq, Text
from relquery.prompt import Prompt, Role
from relquery.sql.binder.task import Task
from relquery.sql.inputs.cells import Cells, are_null
from relquery.sql.inputs.inputs import distinct_rows
from relquery.sql.inputs.prompt import SEPARATOR, SYSTEM, piece
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Output
from relquery.table.columns import encode

MOST_CANDIDATES = 50
"""Candidates of one call."""


def numbers_up_to(candidates: int) -> Output:
    """The type of an answer: numbers of candidates."""
    number = Leaf("INTEGER", least=1, most=candidates)
    return Output(ListOf(number, distinct=True, most=candidates), "INTEGER[]")


@dataclass(frozen=True, slots=True)
class Match:
    """A call. asked: the row of the table that is asked about. candidates: rows of the other."""

    asked: int
    candidates: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The calls for some pairs of rows.

    calls: the distinct ones. of_row: (rows,), the distinct pair of each row; -1 for rows that are
    not asked, as in Inputs. place: for each
    distinct pair, (its call, the number of its candidate, from 1). prompts: of the calls.
    """

    calls: list[Match]
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
        table, every = table.filter(~skipped), np.full(table.num_rows, -1)
        sides = [_Side.of(table, cells, task, side) for side in (0, 1)]
        pairs = np.stack([side.of_row for side in sides], axis=1)
        first, every[~skipped] = distinct_rows(pairs)
        pairs = pairs[first]
        given = _side_of_candidates(pairs)
        layout = _Layout(task.prompt, sides[1 - given].texts, sides[given].texts, backend, task)
        by_asked: dict[int, list[int]] = {}
        for asked, candidate in zip(*pairs[:, [1 - given, given]].T.tolist(), strict=True):
            by_asked.setdefault(asked, []).append(candidate)
        calls = [
            Match(asked, part)
            for asked, candidates in by_asked.items()
            for part in layout.parts(asked, sorted(candidates))
        ]
        calls.sort(key=lambda call: call.candidates)  # those with the same candidates share them
        where = {
            (call.asked, candidate): (at, number)
            for at, call in enumerate(calls)
            for number, candidate in enumerate(call.candidates, 1)
        }
        place = [where[asked, one] for asked, one in pairs[:, [1 - given, given]].tolist()]
        return cls(calls, every, place, [layout.prompt(call) for call in calls])


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The rows of one table. texts: per distinct row, its fields as sent. of_row: (rows,)."""

    texts: list[str]
    of_row: Int64s

    @classmethod
    def of(cls, table: pa.Table, cells: Cells, task: Task, side: int) -> _Side:
        fields = [at for at, one in enumerate(task.sides) if one == side]
        columns = encode(table.select(fields))
        codes = columns.codes.reshape(table.num_rows, len(fields))
        first, of_row = distinct_rows(codes)
        rows = table.select(fields).take(pa.array(first)).columns
        texts = [
            SEPARATOR.join(
                piece(cells.names[field], cells.forms[field], cell)
                for field, cell in zip(fields, row, strict=True)
            )
            for row in zip(*(column.to_pylist() for column in rows), strict=True)
        ]
        return cls(texts, of_row)


def _side_of_candidates(pairs: Int64s) -> int:
    """The side with at most 50 rows whose choice takes the fewest calls; else the smaller one."""
    sizes = pairs.max(axis=0, initial=-1) + 1
    few = [side for side in (0, 1) if sizes[side] <= MOST_CANDIDATES]
    return min(few or (0, 1), key=lambda side: sizes[1 - side] if few else sizes[side])


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a call is written. asked, candidates: the texts of the rows of both sides."""

    question: str
    asked: Sequence[str]
    candidates: Sequence[str]
    backend: Backend
    task: Task

    def prompt(self, call: Match) -> Prompt:
        """The question, the candidates with their numbers, and the data that is asked about."""
        listing = "\n".join(
            f"{number}. {{{self.candidates[one]}}}".replace(SEPARATOR, ", ")
            for number, one in enumerate(call.candidates, 1)
        )
        head = (
            f"Answer the below query for each candidate:\n{self.question}\n"
            "Answer in JSON with the numbers of all candidates for which the answer is yes, e.g. "
            f'{{"answer": [1, 3]}}.\n\nCandidates:\n{listing}\n\nGiven the following data:\n{{\n'
        )
        data = Text(f"{self.asked[call.asked]}\n}}")
        return lower(Seq((Text(SYSTEM, Role.SYSTEM), Text(head), data)))

    def parts(self, asked: int, candidates: list[int]) -> list[tuple[int, ...]]:
        """The candidates in parts that fit in a prompt."""
        return [
            part
            for start in range(0, len(candidates), MOST_CANDIDATES)
            for part in self._halved(asked, tuple(candidates[start : start + MOST_CANDIDATES]))
        ]

    def _halved(self, asked: int, candidates: tuple[int, ...]) -> list[tuple[int, ...]]:
        counts = None
        if len(candidates) > 1:
            prompts = [self.prompt(Match(asked, candidates))]
            counts = self.backend.prompt_tokens(prompts, self.task.sampling)
        if counts is None or counts[0]:
            return [candidates]
        half = len(candidates) // 2
        return [*self._halved(asked, candidates[:half]), *self._halved(asked, candidates[half:])]
