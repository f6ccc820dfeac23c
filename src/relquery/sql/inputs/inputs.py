"""What one call of a query asks: its rows, their distinct inputs, and the inputs' prompts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.config import Order
from relquery.sql.binder.task import Task
from relquery.sql.inputs.cells import Cells
from relquery.sql.inputs.lines import LinesTemplate
from relquery.sql.inputs.pieces import Pieces
from relquery.sql.inputs.prompt import Template
from relquery.sql.inputs.prompts import Prompts
from relquery.sql.inputs.writing import Writing
from relquery.table.columns import Columns, columns_of, encode
from relquery.table.dependencies.dependencies import Dependency, merge
from relquery.table.dependencies.discover import discover
from relquery.table.reorder import reorder
from relquery.table.schedule import Report, Schedule


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

    writing: how their fields are written. pieces: per column, the text sent for each distinct cell.
    codes: (distinct inputs, columns), index into `pieces`. A field has the column of its number;
    further items of bags have the columns after those of all fields. of_row: (rows,), index of each
    row's input; -1 for rows that are not asked because all of their fields are NULL. modules:
    columns that are modules. bags: the columns of each bag. keys: as in Question.
    """

    writing: Writing
    pieces: list[Pieces]
    codes: Int32s
    of_row: Int64s
    template: Template
    modules: tuple[int, ...] = ()
    bags: tuple[tuple[int, ...], ...] = ()
    keys: Callable[[], tuple[Dependency, ...]] = tuple

    @classmethod
    def of(cls, question: Question) -> Inputs:
        """In order of first appearance. Cells with the same text (NULL, JSON null) are equal."""
        task, modules = question.task, question.modules
        writing = Writing.of(task, question.cells, modules)
        written = writing.write(encode(question.cells.fetch()))
        codes = written.codes.reshape(question.rows, len(written.pieces))
        asked = ~written.skipped if written.pieces else np.ones(question.rows, np.bool_)
        codes, of_row = codes[asked], np.full(question.rows, -1)
        first, of_row[asked] = distinct_rows(_in_one_order(codes, written.bags))
        alike = {bag[0]: bag for bag in written.bags}
        modules = tuple(one for at in modules for one in alike.get(at, (at,)))
        return cls(
            writing,
            written.pieces,
            codes[first],
            of_row,
            writing.template(task, written, modules),
            modules,
            written.bags,
            question.keys,
        )

    @property
    def pinned(self) -> tuple[int, ...]:
        """The fields in the query's text, in its order."""
        return self.writing.pinned

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
        texts = [texts[code] for texts, code in zip(self.pieces, self.codes[index], strict=True)]
        bags = {bag[0]: [texts[column] for column in bag] for bag in self.bags}
        return {
            name: self.writing.list_of(at, bags[at])
            if at in bags
            else self.writing.cell(at, texts[at])
            for at, name in enumerate(self.writing.names)
        }

    def schedule(self, rows: Int64s, order: Order) -> Schedule | None:
        """The order in which to send some inputs; None if there is nothing to order.

        Fields in the query's text come first and in its order, so rows are grouped by them. Modules
        share nothing with what is before them. They follow the other fields, which are ordered as
        if they were alone.
        """
        if not self.pieces or not len(rows):
            return None
        free = [at for at in self.template.as_written if at not in self.pinned]
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
        texts = [self.pieces[at].array for at in chosen]
        codes = self.codes[rows][:, chosen]
        # Not labelled: a piece already contains its field's name.
        columns = columns_of(list(map(str, chosen)), codes, texts, labelled=False)
        bags = [list(map(str, bag)) for bag in self.bags if bag[0] in chosen]
        known: tuple[Dependency, ...] = ()
        if order in _BY_DEPENDENCIES:
            loose = [name for bag in bags for name in bag]
            known = merge(discover(columns, skip=loose), self._keys(chosen, loose))
        options: dict[str, Any] = {"polishing": _POLISHING} if order == "tree" else {}
        schedule = reorder(columns, order, known, bags, weight="tokens", **options)
        if order == "tree" and isinstance(self.template, LinesTemplate):
            schedule = self._worth_its_names(schedule, columns, bags, chosen)
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

    def _worth_its_names(
        self, schedule: Schedule, columns: Columns, bags: list[list[str]], chosen: list[int]
    ) -> Schedule:
        """The schedule, or one order for all rows if names take more than it saves: in lines, rows
        whose fields are in another order than most are sent with names."""
        assert isinstance(self.template, LinesTemplate)
        names = self.template.names_sent(np.array(chosen)[schedule.fields])
        if not names:
            return schedule
        fixed = reorder(columns, "fixed", "discover", bags, weight="tokens")
        names -= self.template.names_sent(np.array(chosen)[fixed.fields])
        characters = int(columns.lengths[columns.codes + columns.offsets[:-1]].sum())
        saved = float(schedule.report.phr - fixed.report.phr) * characters
        return schedule if saved >= names else fixed

    def _keys(self, chosen: list[int], loose: Collection[str]) -> Iterator[Dependency]:
        """What keys say of some fields, named by their places. loose: the places of bags."""
        fields = (at for at in chosen if at < len(self.writing.names) and str(at) not in loose)
        place = {self.writing.names[at]: str(at) for at in fields}
        for key in self.keys():
            others = tuple(place[name] for name in key.dependents if name in place)
            if others and all(name in place for name in key.determinants):
                yield Dependency(tuple(place[name] for name in key.determinants), others)

    def prompts(self, rows: Int64s, schedule: Schedule | None) -> Prompts:
        """Prompts of inputs `rows`, their fields in the order of the schedule.

        They are built when they are read.
        """
        fields = None if schedule is None else schedule.fields
        template = self.template if fields is None else self.template.led_by(fields)
        return Prompts(template, self.codes, rows, fields)

    def sorted(self, rows: Int64s) -> Int64s:
        """Some inputs in an order in which prompts share prefixes, if fields are as written."""
        free = [at for at in self.template.as_written if at not in self.pinned]
        codes = self.codes[rows][:, [*self.pinned, *free]]
        return rows[np.lexsort(codes.T[::-1])] if codes.shape[1] else rows

    def prompts_as_written(self) -> Prompts:
        """Prompts of all inputs, fields in the query's order; they identify the question."""
        return self.prompts(np.arange(self.count), None)


def _grouped(schedule: Schedule, pinned: Int32s) -> Schedule:
    """The schedule with rows of equal pinned cells together; within them its order stays.

    pinned: (rows, pinned fields), codes of the cells in the order of the query's text.
    """
    rank = np.empty(len(schedule.rows), np.int64)
    rank[schedule.rows] = np.arange(len(rank))
    by_text = np.lexsort((rank, *pinned.T[::-1]))
    return replace(schedule, rows=by_text, fields=schedule.fields[rank[by_text]])


# Methods that find better orders if they know which columns determine which (paper 000, section
# 4.2.1). `tree` finds as good ones without.
_BY_DEPENDENCIES = ("fixed", "ggr")
# Of the predicted time of the calls. Polishing finds up to half a point more hits, and should not
# take longer than these save.
_POLISHING = 0.01
_UNSOLVED = Report("original", "tokens", 0.0, 0, 0.0, ())


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
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first)
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(len(by_appearance))
    return first[by_appearance], rank[inverse]
