"""What one call of a query asks: its rows, their distinct inputs, and the inputs' prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.config import Order
from relquery.prompt import Prompt
from relquery.sql.execute.prompt import Form, Template, piece, pinned_in, plain_piece
from relquery.sql.functions.task import Task
from relquery.table.columns import columns_of, encode
from relquery.table.reorder import reorder
from relquery.table.schedule import Report, Schedule


@dataclass(frozen=True, slots=True)
class Question:
    """One call and its input rows. cells: text per field and row; forms: one per field. modules:
    the fields that are modules (see Template), by their place."""

    name: str
    task: Task
    rows: int
    cells: pa.Table
    forms: tuple[Form, ...]
    modules: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The distinct inputs of a call.

    pieces: per field, the text sent for each distinct cell. codes: (distinct inputs, fields), index
    into `pieces`. of_row: (rows,), index of each row's input. pinned: the fields in the query's
    text, in its order.
    """

    pieces: list[list[str]]
    codes: Int64s
    of_row: Int64s
    template: Template
    pinned: tuple[int, ...] = ()
    modules: tuple[int, ...] = ()

    @classmethod
    def of(cls, question: Question) -> Inputs:
        """In order of first appearance. Cells with the same text (NULL, JSON null) are equal."""
        columns = encode(question.cells)
        codes = columns.codes.reshape(question.rows, len(question.forms)).astype(np.int64)
        pinned = pinned_in(question.task.query)
        pieces = []
        for at, (name, form) in enumerate(zip(columns.names, question.forms, strict=True)):
            given = columns.values[at].to_pylist()
            in_text = at in pinned
            cells = [plain_piece(one) if in_text else piece(name, form, one) for one in given]
            numbers = {text: number for number, text in enumerate(dict.fromkeys(cells))}
            pieces.append(list(numbers))
            codes[:, at] = np.array([numbers[text] for text in cells], np.int64)[codes[:, at]]
        first, of_row = distinct_rows(codes)
        template = Template(question.task.query, pieces, question.modules)
        return cls(pieces, codes[first], of_row, template, pinned, question.modules)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.codes)

    def row_of(self, index: int) -> int:
        """The first row of the question with distinct input `index`."""
        return int(np.argmax(self.of_row == index))

    def schedule(self, rows: Int64s, order: Order) -> Schedule | None:
        """The order in which to send some inputs; None if there is nothing to order.

        Fields in the query's text come first and in its order, so rows are grouped by them. Modules
        share nothing with what is before them. They follow the other fields, which are ordered as
        if they were alone.
        """
        if not self.pieces or not len(rows):
            return None
        free = [at for at in range(len(self.pieces)) if at not in self.pinned]
        if not free:
            schedule = Schedule(np.arange(len(rows)), np.zeros((len(rows), 0), np.int32), _UNSOLVED)
        else:
            schedule = self._of_data(rows, free, order)
        if not self.pinned or order == "original":
            return schedule
        return _grouped(schedule, self.codes[rows][:, list(self.pinned)])

    def _of_data(self, rows: Int64s, free: list[int], order: Order) -> Schedule:
        """The order of some inputs by the fields that may be sent in any order."""
        modules = [at for at in free if at in self.modules]
        chosen = [at for at in free if at not in self.modules] or free
        # No names: a piece already contains its field's name.
        texts = [self.pieces[at] for at in chosen]
        columns = columns_of([""] * len(chosen), self.codes[rows][:, chosen], texts)
        schedule = reorder(columns, order, weight="tokens")
        if len(chosen) == len(self.pieces):
            return schedule
        if order == "original":
            fields = np.tile(np.array(free), (len(rows), 1))
        else:
            fields = np.array(chosen)[schedule.fields]
            if len(chosen) < len(free):
                last = np.tile(np.array(modules), (len(rows), 1))
                fields = np.concatenate((fields, last), axis=1)
        return replace(schedule, fields=fields.astype(np.int32))

    def prompts(self, rows: Int64s, schedule: Schedule | None) -> list[Prompt]:
        """Prompts of inputs `rows`, their fields in the order of the schedule."""
        cells = self.codes[rows].tolist()
        fields = [at for at in range(len(self.pieces)) if at not in self.pinned]
        orders = repeat(fields) if schedule is None else schedule.fields.tolist()
        return [self.template.prompt(row, order) for row, order in zip(cells, orders, strict=False)]

    def prompts_as_written(self) -> list[Prompt]:
        """Prompts of all inputs, fields in the query's order; they identify the question."""
        return self.prompts(np.arange(self.count), None)


def _grouped(schedule: Schedule, pinned: Int64s) -> Schedule:
    """The schedule with rows of equal pinned cells together; within them its order stays.

    pinned: (rows, pinned fields), codes of the cells in the order of the query's text.
    """
    rank = np.empty(len(schedule.rows), np.int64)
    rank[schedule.rows] = np.arange(len(rank))
    by_text = np.lexsort((rank, *pinned.T[::-1]))
    return replace(schedule, rows=by_text, fields=schedule.fields[rank[by_text]])


_UNSOLVED = Report("original", "tokens", 0.0, 0, 0.0, ())


def distinct_rows(codes: Int64s) -> tuple[Int64s, Int64s]:
    """(first row of each distinct row, distinct row of each row), in order of first appearance.

    codes: (rows, columns), counted from 0 per column.
    """
    keys = np.zeros(len(codes), dtype=np.int64)
    for column in codes.T:
        # Renumbering after each column keeps keys below rows**2.
        keys = keys * (column.max(initial=0) + 1) + column
        keys = np.unique(keys, return_inverse=True)[1]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first)
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(len(by_appearance))
    return first[by_appearance], rank[inverse]
