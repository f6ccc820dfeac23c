"""Writes the cells of a call as they are sent, in the call's form, and reads them back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from relquery.arrays import Bools, Int32s
from relquery.sql.binder.task import Task
from relquery.sql.inputs.bags import Bag
from relquery.sql.inputs.cells import Cells, are_null
from relquery.sql.inputs.lines import Lines, LinesTemplate
from relquery.sql.inputs.pieces import Pieces, Write, write_pieces
from relquery.sql.inputs.prompt import OF_ITEM, Form, Template, cell_of, list_of, pinned_in
from relquery.table.columns import Columns


@dataclass(frozen=True, slots=True)
class Written:
    """pieces: per column, the text sent for each distinct cell. codes: (rows, columns), the piece
    of each cell. bags: the columns of each bag. skipped: (rows,), whether a row is not asked as
    all of its fields are NULL."""

    pieces: list[Pieces]
    codes: Int32s
    bags: tuple[tuple[int, ...], ...]
    skipped: Bools


@dataclass(frozen=True, slots=True)
class Writing:
    """How the fields of a call are written.

    names, forms: of the fields. pinned: those in the query's text. modules: those that are modules.
    lines: None for JSON. skips: whether rows with NULL in all fields are not asked.
    """

    names: tuple[str, ...]
    forms: tuple[Form, ...]
    pinned: tuple[int, ...]
    modules: tuple[int, ...]
    lines: Lines | None
    skips: bool

    @classmethod
    def of(cls, task: Task, cells: Cells, modules: tuple[int, ...]) -> Writing:
        """In the form of a task."""
        pinned, skips = pinned_in(task.sent), bool(cells.names) and task.nulls == "skip"
        if task.form != "lines":
            return cls(cells.names, cells.forms, pinned, modules, None, skips)
        is_loose = bool(modules) or any(form in OF_ITEM for form in cells.forms)
        is_one = len(cells.names) - len(pinned) == 1 and not is_loose
        lines = Lines.of(cells.names, is_one=is_one)
        return cls(cells.names, cells.forms, pinned, modules, lines, skips)

    def write(self, columns: Columns) -> Written:
        """The columns of the fields, which are taken apart to save memory."""
        codes, values = columns.codes, list(columns.values)
        del columns
        skipped = np.full(len(codes), self.skips)
        pieces, more, bags = list[Pieces](), list[tuple[Pieces, Int32s]](), list[tuple[int, ...]]()
        for at, (name, form) in enumerate(zip(self.names, self.forms, strict=True)):
            if skipped.any():
                skipped &= are_null(values[at], form)[codes[:, at]]
            if form in OF_ITEM:
                bag = Bag.of(name, form, values[at], self.lines)
                items = bag.items[codes[:, at]]
                begin, count = len(self.names) + len(more), items.shape[1] - 1
                bags.append((at, *range(begin, begin + count)))
                more += [(bag.pieces, items[:, one]) for one in range(1, count + 1)]
                pieces.append(bag.pieces)
                codes[:, at] = items[:, 0]
                continue
            in_text, write = at in self.pinned, self._write(at)
            texts, merged = write_pieces(name, form, values[at], in_text=in_text, write=write)
            values[at] = None
            pieces.append(texts)
            if merged is not None:
                codes[:, at] = merged[codes[:, at]]
        if more:
            codes = np.column_stack((codes, *(column for _, column in more)))
        return Written(pieces + [texts for texts, _ in more], codes, tuple(bags), skipped)

    def _write(self, at: int) -> Write | None:
        if self.lines is None:
            return None
        if at in self.modules:
            return partial(self.lines.named, self.names[at], self.forms[at])
        return partial(self.lines.value, self.forms[at])

    def template(self, task: Task, written: Written, modules: tuple[int, ...]) -> Template:
        """The prompts. modules: columns that are modules."""
        if self.lines is None:
            return Template(task.sent, written.pieces, modules, written.bags)
        names, is_one = self.names, self.lines.is_one
        return LinesTemplate(task.sent, written.pieces, names, modules, written.bags, is_one=is_one)

    def cell(self, at: int, text: str) -> str | None:
        """The cell of a field from its piece."""
        if at in self.pinned:
            return text
        if self.lines is None:
            return cell_of(self.names[at], self.forms[at], text)
        value = self.lines.value_in(self.names[at], text) if at in self.modules else text
        return self.lines.cell(self.forms[at], value)

    def list_of(self, at: int, texts: list[str]) -> str:
        """The items of a bag from their pieces, as a JSON list."""
        if self.lines is None:
            return list_of(self.names[at], texts)
        return self.lines.list_of(self.names[at], self.forms[at], texts)
