"""A join condition as a classification: for each row of one table, which of the other's match.

    a JOIN b ON AI_FILTER('Is {a.text} about {b.name}?', classify := true)
    =>  a call for each text, with the names as numbered candidates

A call answers many pairs, so 30 rows and 40 candidates take 30 calls and not 1,200. The model sees
the candidates together, so answers may differ from those for single pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.backends.base import Backend
from relquery.ir.lower import lower
from relquery.ir.nodes import Seq, Text
from relquery.prompt import Prompt, Role
from relquery.sql.binder.call import Task
from relquery.sql.inputs.cells import JSON, Cells, are_null
from relquery.sql.inputs.forest import halved
from relquery.sql.inputs.inputs import distinct_rows
from relquery.sql.inputs.prompt import SYSTEM
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Output
from relquery.table.columns import encode

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
            listed = [candidate_texts[one] for one in candidates]
            return _prompt(task.prompt, asked_texts[asked], listed)

        def fits(asked: int, candidates: tuple[int, ...]) -> bool:
            counts = backend.prompt_tokens([prompt(asked, candidates)], task.sampling)
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
            (asked, candidate): (at, number)
            for at, (part, asked) in enumerate(calls)
            for number, candidate in enumerate(part, 1)
        }
        place = [where[asked, candidate] for asked, candidate in pairs.tolist()]
        prompts = [prompt(asked, part) for part, asked in calls]
        return cls([len(part) for part, _ in calls], of_row, place, prompts)


def _side(table: pa.Table, cells: Cells, task: Task, side: int) -> tuple[list[str], Int64s]:
    """(the fields of each distinct row of one table as sent, the distinct row of each row)."""
    fields = [at for at, one in enumerate(task.sides) if one == side]
    table = table.select(fields)
    first, of_row = distinct_rows(encode(table).codes.reshape(table.num_rows, len(fields)))
    columns = []
    for at, column in zip(fields, table.take(pa.array(first)).columns, strict=True):
        write = partial(JSON.piece, JSON.label(cells.names[at]), cells.forms[at])
        columns.append(map(write, column.to_pylist()))
    return list(map(JSON.separator.join, zip(*columns, strict=True))), of_row


def _side_of_candidates(pairs: Int64s) -> int:
    """The side with at most 50 rows whose choice takes the fewest calls; else the smaller one."""
    sizes = pairs.max(axis=0, initial=-1) + 1
    few = [side for side in (0, 1) if sizes[side] <= MOST_CANDIDATES]
    return min(few or (0, 1), key=lambda side: sizes[1 - side] if few else sizes[side])


def _prompt(question: str, asked: str, candidates: Sequence[str]) -> Prompt:
    listing = "\n".join(
        f"{number}. {{{one}}}".replace(JSON.separator, ", ")
        for number, one in enumerate(candidates, 1)
    )
    head = (
        f"Answer the below query for each candidate:\n{question}\n"
        "Answer in JSON with the numbers of all candidates for which the answer is yes, e.g. "
        f'{{"answer": [1, 3]}}.\n\nCandidates:\n{listing}\n\nGiven the following data:\n{{\n'
    )
    return lower(Seq((Text(SYSTEM, Role.SYSTEM), Text(head), Text(f"{asked}\n}}"))))
