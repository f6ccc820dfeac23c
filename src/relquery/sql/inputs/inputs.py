"""The inputs of one call: its rows, their distinct inputs, and the inputs' prompts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.config import Order
from relquery.lazy import LazySequence
from relquery.prompt import Prompt
from relquery.reordering.dependencies import Dependency
from relquery.reordering.encode import columns_of, encode, number_by_appearance
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Schedule, ScheduleReport
from relquery.sql.binder.call import Task
from relquery.sql.inputs.cells import (
    JSON,
    OF_ITEM,
    Cells,
    JsonWriter,
    Pieces,
    TextWriter,
    are_null,
    write_bags,
    write_pieces,
)
from relquery.sql.inputs.prompt import CallTemplate, pinned_in

# Methods that find better orders if they know which columns determine which (paper 000, section
# 4.2.1). `tree` finds as good ones without.
_BY_DEPENDENCIES = ("fixed", "ggr")
# Of the predicted time of the calls. Polishing finds up to half a point more hits, and should not
# take longer than these save.
_POLISHING = 0.01
_UNSOLVED = ScheduleReport("original", "tokens", 0.0, 0, 0.0, ())


@dataclass(frozen=True, slots=True)
class Question:
    """One call and its input rows. rows: how many. cells: their fields. modules: the fields that
    are modules (see Template), by their place. keys: reads what declared keys say of the fields, by
    their names.
    """

    name: str
    task: Task
    rows: int
    cells: Cells
    modules: tuple[int, ...] = ()
    keys: Callable[[], tuple[Dependency, ...]] = tuple


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The distinct inputs of a call.

    pieces: per column, the text sent for each distinct cell. codes: (distinct inputs, columns),
    index into `pieces`. A field has the column of its number; further items of bags have the
    columns after those of all fields. of_row: (rows,), index of each row's input; -1 for rows that
    are not asked because all of their fields are NULL.
    """

    question: Question
    pieces: list[Pieces]
    codes: Int32s
    of_row: Int64s
    template: CallTemplate

    @classmethod
    def of(cls, question: Question) -> Inputs:
        """In order of first appearance. Cells with the same text (NULL, JSON null) are equal."""
        task, cells, modules = question.task, question.cells, question.modules
        writer: JsonWriter = JSON
        pinned = pinned_in(task.sent)
        if task.form == "text":
            is_one = len(cells.names) - len(pinned) == 1 and OF_ITEM.keys().isdisjoint(cells.forms)
            writer = TextWriter(cells.names, is_one=is_one and not modules)
        pieces, codes, bags, asked = _written(question, pinned, writer)
        codes, of_row = codes[asked], np.full(question.rows, -1)
        first, of_row[asked] = distinct_rows(_in_one_order(codes, bags))
        of_field = {bag[0]: bag for bag in bags}
        modules = tuple(place for field in modules for place in of_field.get(field, (field,)))
        template = CallTemplate(task.sent, pieces, modules, bags, writer)
        return cls(question, pieces, codes[first], of_row, template)

    @property
    def pinned(self) -> tuple[int, ...]:
        """The fields in the query's text, in its order."""
        return self.template.pinned

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.codes)

    @property
    def skipped(self) -> int:
        """How many rows are not asked."""
        return int((self.of_row < 0).sum())

    def cells(self, index: int) -> dict[str, str | None]:
        """The fields of an input by name, for messages."""
        row = np.flatnonzero(self.of_row == index)[:1]
        rows: list[dict[str, str | None]] = self.question.cells.part(row).fetch().to_pylist()
        return rows[0] if rows else {}

    def schedule(self, rows: Int64s, order: Order) -> Schedule | None:
        """The order in which to send some inputs; None if there is nothing to order.

        Fields in the query's text come first and in its order, so rows are grouped by them. Modules
        share nothing with what is before them. They follow the other fields, which are ordered as
        if they were alone.
        """
        if not self.pieces or not len(rows):
            return None
        if free := self._free:
            schedule = self._of_data(rows, free, order)
        else:
            schedule = Schedule(np.arange(len(rows)), np.zeros((len(rows), 0), np.int32), _UNSOLVED)
        if not self.pinned or order == "original":
            return schedule
        # Rows of equal texts together; within them the order stays.
        rank = np.empty(len(rows), np.int64)
        rank[schedule.rows] = np.arange(len(rows))
        by_text = np.lexsort((rank, *self.codes[rows][:, list(self.pinned)].T[::-1]))
        return replace(schedule, rows=by_text, fields=schedule.fields[rank[by_text]])

    @property
    def _free(self) -> list[int]:
        """The columns that are data, in the order of the query's fields."""
        return [field for field in self.template.as_written if field not in self.pinned]

    def _of_data(self, rows: Int64s, free: list[int], order: Order) -> Schedule:
        """The order of some inputs by the fields that may be sent in any order."""
        modules = [field for field in free if field in self.template.modules]
        chosen = [field for field in free if field not in modules] or free
        texts = [self.pieces[field].array for field in chosen]
        # Not labelled: a piece already contains its field's name.
        names, codes = list(map(str, chosen)), self.codes[rows][:, chosen]
        columns = columns_of(names, codes, texts, labelled=False)
        bags = [list(map(str, bag)) for bag in self.template.bags if bag[0] in chosen]
        known: tuple[Dependency, ...] = ()
        if order in _BY_DEPENDENCIES:
            loose = [name for bag in bags for name in bag]
            known = tuple(self._keys(chosen, loose))
        options: dict[str, Any] = {"polishing": _POLISHING} if order == "tree" else {}
        schedule = reorder(columns, order, known, bags, weight="tokens", **options)
        schedule = replace(schedule, source=None)  # prompts are built from the pieces
        if chosen == list(range(len(self.pieces))):
            return schedule
        if order == "original":
            fields = np.tile(np.array(free), (len(rows), 1))
        else:
            fields = np.array(chosen)[schedule.fields]
            if len(chosen) < len(free):
                last = np.tile(np.array(modules), (len(rows), 1))
                fields = np.concatenate((fields, last), axis=1)
        return replace(schedule, fields=fields.astype(np.int32))

    def _keys(self, chosen: list[int], loose: Collection[str]) -> Iterator[Dependency]:
        """What keys say of some fields, named by their places. loose: the places of bags."""
        names = self.question.cells.names
        fields = (field for field in chosen if field < len(names) and str(field) not in loose)
        place = {names[field]: str(field) for field in fields}
        declared = self.question.keys()
        for key in declared:
            others = tuple(place[name] for name in key.dependents if name in place)
            if others and all(name in place for name in key.determinants):
                yield Dependency(tuple(place[name] for name in key.determinants), others)

    def prompts(self, rows: Int64s, schedule: Schedule | None) -> LazySequence[Prompt]:
        """Prompts of inputs `rows`, their fields in the order of the schedule.

        They are built when they are read.
        """
        fields = None if schedule is None else schedule.fields
        return self.template.prompts(self.codes, rows, fields)

    def sorted(self, rows: Int64s) -> Int64s:
        """Some inputs in an order in which prompts share prefixes, if fields are as written."""
        codes = self.codes[rows][:, [*self.pinned, *self._free]]
        return rows[np.lexsort(codes.T[::-1])] if codes.shape[1] else rows

    def prompts_as_written(self) -> LazySequence[Prompt]:
        """Prompts of all inputs, fields in the query's order; they identify the question."""
        return self.prompts(np.arange(self.count), None)


def _written(
    question: Question, pinned: tuple[int, ...], writer: JsonWriter
) -> tuple[list[Pieces], Int32s, tuple[tuple[int, ...], ...], Bools]:
    """(pieces, (rows, columns) the piece of each cell, the columns of each bag, (rows,) whether a
    row is asked)."""
    cells = question.cells
    columns = encode(cells.fetch())
    codes, values = columns.codes, list(columns.values)
    del columns  # so that the values of a column are freed once they are written
    first = int(question.task.is_by_row)  # field that is data
    can_skip = len(cells.names) > first and question.task.nulls == "skip"
    skipped = np.full(question.rows, can_skip)
    pieces, bags = list[Pieces](), list[tuple[int, ...]]()
    items_after = list[tuple[Pieces, Int32s]]()
    for index, (name, form) in enumerate(zip(cells.names, cells.forms, strict=True)):
        if index >= first and skipped.any():
            skipped &= are_null(values[index], form)[codes[:, index]]
        write = partial(writer.piece, writer.label(name), OF_ITEM.get(form, form))
        if form in OF_ITEM:
            texts, items = write_bags(values[index], write)
            items = items[codes[:, index]]
            begin = len(cells.names) + len(items_after)
            bags.append((index, *range(begin, begin + items.shape[1] - 1)))
            items_after += [(texts, column) for column in items.T[1:]]
            codes[:, index] = items[:, 0]
        else:
            texts, merged = write_pieces(
                values[index],
                _plain if index in pinned else write,
                are_distinct=form == "string" and index not in pinned,
            )
            if merged is not None:
                codes[:, index] = merged[codes[:, index]]
        values[index] = None
        pieces.append(texts)
    if items_after:
        codes = np.column_stack((codes, *(column for _, column in items_after)))
        pieces += [texts for texts, _ in items_after]
    return pieces, codes.reshape(question.rows, len(pieces)), tuple(bags), ~skipped


def _plain(cell: str | None) -> str:
    return "null" if cell is None else cell


def _in_one_order(codes: Int32s, bags: tuple[tuple[int, ...], ...]) -> Int32s:
    """The codes with the items of each bag sorted: bags of the same items are the same bag."""
    if not bags:
        return codes
    codes = codes.copy()
    for bag in bags:
        codes[:, list(bag)] = np.sort(codes[:, list(bag)], axis=1)
    return codes


def distinct_rows(codes: Int32s | Int64s) -> tuple[Int64s, Int64s]:
    """(first row of each distinct row, distinct row of each row), in order of first appearance.

    codes: (rows, columns), counted from 0 per column.
    """
    keys = np.zeros(len(codes), dtype=np.int64)
    for column in codes.T:
        # Renumbering after each column keeps keys below rows**2.
        keys = keys * (column.max(initial=0) + 1) + column
        keys = np.unique(keys, return_inverse=True)[1]
    of_row = number_by_appearance(keys, int(keys.max(initial=-1)) + 1)[0].astype(np.int64)
    return np.unique(of_row, return_index=True)[1], of_row
