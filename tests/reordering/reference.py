"""Slow, readable counterparts of the code in C++: what it must agree with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

import pyarrow as pa

from relquery.reordering.encode import Columns, encode
from relquery.reordering.schedule import Schedule

Cell = str | None
Rows = list[list[Cell]]
Item = tuple[int, str]  # (column or bag, text)
Row = tuple[int, list[int]]  # (row id, its columns in the order sent)
Sent = list[Row]
Shared = Callable[[Row, Row], int]

NAMES = ["column", "column 1", "pass", "passages", "col"]  # that begin alike, as "passage" does


@dataclass(frozen=True)
class Table:
    """cells[row][column]; classes[column] is the same for columns that determine one another.

    bag: columns whose values are interchangeable.
    """

    cells: Rows
    classes: Sequence[int]
    bag: Sequence[int] = ()

    @property
    def names(self) -> list[str]:
        return NAMES[: len(self.classes)]

    @property
    def columns(self) -> Columns:
        """As what is tested takes it."""
        arrays = [pa.array([row[i] for row in self.cells], pa.string()) for i in self._numbers]
        return encode(pa.table(arrays, names=self.names))

    @property
    def bags(self) -> list[list[str]]:
        return [[self.names[column] for column in self.bag]] if self.bag else []

    @property
    def dependencies(self) -> list[tuple[str, ...]]:
        """Columns of one class, outside the bag."""
        free = [column for column in self._numbers if column not in self.bag]
        groups = [
            tuple(self.names[column] for column in free if self.classes[column] == group)
            for group in range(4)
        ]
        return [group for group in groups if len(group) > 1]

    @property
    def _numbers(self) -> range:
        return range(len(self.classes))

    def length(self, row: int, column: int) -> int:
        return len(self.cells[row][column] or "")

    def item(self, row: int, column: int) -> Item:
        """NULL is sent as empty text."""
        return (-1 if column in self.bag else column), self.cells[row][column] or ""

    def label(self, column: int) -> str:
        return "passage: " if column in self.bag else f"{self.names[column]}: "

    def line(self, row: int, column: int) -> str:
        return f"{self.label(column)}{self.cells[row][column] or ''}\n"


def sent_by(schedule: Schedule) -> Sent:
    return list(zip(schedule.rows.tolist(), schedule.fields.tolist(), strict=True))


def ggr(table: Table, rows: list[int], columns: list[int]) -> tuple[int, Sent]:
    """Algorithm 1 of paper 000 with its three slips corrected: (hit count, what is sent).

    The hit count is what the algorithm adds up; where a dependency does not hold it is too high.
    """
    if not columns or len(rows) <= 1:
        return 0, [(row, columns) for row in rows]
    best_count, best_group, best_column = 0, [], -1
    for column in columns:
        for group in groups_of(table, rows, column):
            count = hit_count(table, group, column, columns)
            if count > best_count:
                best_count, best_group, best_column = count, group, column
    if best_count == 0:  # no two rows share anything of any length: every order is as good
        return 0, [(row, columns) for row in rows]
    front = [best_column] + [
        column
        for column in same_class(table, best_column, columns)
        if len({table.item(row, column) for row in best_group}) == 1
    ]
    others = [row for row in rows if row not in best_group]
    remaining = [column for column in columns if column not in front]
    count_a, sent_a = ggr(table, others, columns)
    count_b, sent_b = ggr(table, best_group, remaining)
    sent = [(row, front + fields) for row, fields in sent_b] + sent_a
    return count_a + count_b + best_count, sent


def hit_count(table: Table, group: list[int], column: int, columns: list[int]) -> int:
    """Lines 3 to 8, with squared lengths in line 6 as well; rounded down."""
    squares = [
        table.length(row, c) ** 2
        for c in [column, *same_class(table, column, columns)]
        for row in group
    ]
    return sum(squares) * (len(group) - 1) // len(group)


def groups_of(table: Table, rows: list[int], column: int) -> list[list[int]]:
    """Rows by value, values in the order in which the whole table shows them first."""
    values = dict.fromkeys(table.item(row, column) for row in range(len(table.cells)))
    groups = [[row for row in rows if table.item(row, column) == value] for value in values]
    return [group for group in groups if group]


def same_class(table: Table, column: int, columns: list[int]) -> list[int]:
    return [c for c in columns if c != column and table.classes[c] == table.classes[column]]


def hits(table: Table, sent: Sent) -> int:
    """PHC by its definition."""
    total = 0
    for (before, fields_before), (row, fields) in pairwise(sent):
        for field, field_before in zip(fields, fields_before, strict=True):
            if table.item(row, field) != table.item(before, field_before):
                break
            total += table.length(row, field) ** 2
    return total


def hit_rate(table: Table, sent: Sent, *, window: int | None = None) -> float:
    """PHR by its definition, by comparing each row with all (or `window`) rows sent before."""
    shared = total = 0
    for i, (row, fields) in enumerate(sent):
        earlier = sent[:i] if window is None else sent[max(i - window, 0) : i]
        total += sum(len(table.label(field)) + table.length(row, field) for field in fields)
        shared += max((in_common(table, (row, fields), other) for other in earlier), default=0)
    return shared / total if total else 0.0


def agreement(a: str, b: str) -> int:
    """Leading characters that two texts have in common."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def in_common(table: Table, a: Row, b: Row) -> int:
    """Leading characters: whole equal items, then the beginning of the first that differ.

    Texts of two columns share no more than their labels do.
    """
    total = 0
    for mine, other in zip(a[1], b[1], strict=True):
        item, other_item = table.item(a[0], mine), table.item(b[0], other)
        labels = table.label(mine), table.label(other)
        if item == other_item:
            total += len(labels[0]) + table.length(a[0], mine)
            continue
        if item[0] != other_item[0]:
            return total + agreement(*labels)
        return total + len(labels[0]) + agreement(item[1], other_item[1])
    return total


def best_sum(table: Table, shared: Shared) -> int:
    """The highest sum of what neighbours share, by trying every row order and all field orders."""
    orders = [list(fields) for fields in permutations(range(len(table.classes)))]
    rows = range(len(table.cells))
    worth = {
        (a, b): [[shared((a, x), (b, y)) for x in orders] for y in orders]
        for a, b in permutations(rows, 2)
    }
    best = 0
    for sent in permutations(rows):
        reached = [0] * len(orders)
        for pair in pairwise(sent):
            reached = [max(map(sum, zip(reached, x, strict=True))) for x in worth[pair]]
        best = max(best, *reached)
    return best
