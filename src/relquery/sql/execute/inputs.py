"""What one call of a query asks: its rows, their distinct inputs, and the inputs' prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.config import Order
from relquery.prompt import Prompt, Sampling
from relquery.sql.execute.prompt import Form, Template, piece
from relquery.table.columns import columns_of, encode
from relquery.table.reorder import reorder
from relquery.table.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Question:
    """One call and its input rows. cells: text per field and row; forms: one per field. modules:
    the fields that are modules (see Template), by their place."""

    name: str
    prompt: str
    sampling: Sampling
    rows: int
    cells: pa.Table
    forms: tuple[Form, ...]
    modules: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The distinct inputs of a call.

    pieces: per field, the text sent for each distinct cell. codes: (distinct inputs, fields), index
    into `pieces`. of_row: (rows,), index of each row's input.
    """

    pieces: list[list[str]]
    codes: Int64s
    of_row: Int64s
    template: Template
    modules: tuple[int, ...] = ()

    @classmethod
    def of(cls, question: Question) -> Inputs:
        """In order of first appearance. Cells with the same text (NULL, JSON null) are equal."""
        columns = encode(question.cells)
        codes = columns.codes.reshape(question.rows, len(question.forms)).astype(np.int64)
        pieces = []
        for at, (name, form) in enumerate(zip(columns.names, question.forms, strict=True)):
            cells = [piece(name, form, cell) for cell in columns.values[at].to_pylist()]
            numbers = {text: number for number, text in enumerate(dict.fromkeys(cells))}
            pieces.append(list(numbers))
            codes[:, at] = np.array([numbers[text] for text in cells], np.int64)[codes[:, at]]
        first, of_row = distinct_rows(codes)
        template = Template(question.prompt, pieces, question.modules)
        return cls(pieces, codes[first], of_row, template, question.modules)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.codes)

    def row_of(self, index: int) -> int:
        """The first row of the question with distinct input `index`."""
        return int(np.argmax(self.of_row == index))

    def schedule(self, rows: Int64s, order: Order) -> Schedule | None:
        """The order in which to send some inputs; None if there is nothing to order.

        Modules share nothing with what is before them. They follow the other fields, which are
        ordered as if they were alone.
        """
        if not self.pieces or not len(rows):
            return None
        others = [at for at in range(len(self.pieces)) if at not in self.modules]
        chosen = others or list(range(len(self.pieces)))
        # No names: a piece already contains its field's name.
        texts = [self.pieces[at] for at in chosen]
        columns = columns_of([""] * len(chosen), self.codes[rows][:, chosen], texts)
        schedule = reorder(columns, order, weight="tokens")
        if len(chosen) == len(self.pieces):
            return schedule
        if order == "original":
            fields = np.tile(np.arange(len(self.pieces)), (len(rows), 1))
        else:
            last = np.tile(np.array(self.modules), (len(rows), 1))
            fields = np.concatenate((np.array(chosen)[schedule.fields], last), axis=1)
        return replace(schedule, fields=fields.astype(np.int32))

    def prompts(self, rows: Int64s, schedule: Schedule | None) -> list[Prompt]:
        """Prompts of inputs `rows`, their fields in the order of the schedule."""
        cells, fields = self.codes[rows].tolist(), range(len(self.pieces))
        orders = repeat(fields) if schedule is None else schedule.fields.tolist()
        return [self.template.prompt(row, order) for row, order in zip(cells, orders, strict=False)]

    def prompts_as_written(self) -> list[Prompt]:
        """Prompts of all inputs, fields in the query's order; they identify the question."""
        return self.prompts(np.arange(self.count), None)


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
