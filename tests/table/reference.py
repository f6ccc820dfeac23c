"""Slow, readable counterparts of the compiled code: what it must agree with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

Cell = str | None
Rows = list[list[Cell]]
Sent = list[tuple[int, list[int]]]  # (row id, its columns in the order sent)


@dataclass(frozen=True)
class Table:
    """cells[row][column]; classes[column] is the same for columns that determine one another."""

    cells: Rows
    classes: Sequence[int]

    def length(self, row: int, column: int) -> int:
        return len(self.cells[row][column] or "")


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
        if len({table.cells[row][column] for row in best_group}) == 1
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
    values = dict.fromkeys(cells[column] for cells in table.cells)
    groups = [[row for row in rows if table.cells[row][column] == value] for value in values]
    return [group for group in groups if group]


def same_class(table: Table, column: int, columns: list[int]) -> list[int]:
    return [c for c in columns if c != column and table.classes[c] == table.classes[column]]


def hits(table: Table, sent: Sent) -> int:
    """PHC by its definition."""
    total = 0
    for (before, fields_before), (row, fields) in pairwise(sent):
        for field, field_before in zip(fields, fields_before, strict=True):
            if field != field_before or table.cells[row][field] != table.cells[before][field]:
                break
            total += table.length(row, field) ** 2
    return total


def hit_rate(table: Table, names: Sequence[str], sent: Sent) -> float:
    """PHR by its definition."""
    seen: set[tuple[tuple[int, Cell], ...]] = set()
    shared = total = 0
    for row, fields in sent:
        cells = [(field, table.cells[row][field]) for field in fields]
        prefixes = [tuple(cells[: i + 1]) for i in range(len(cells))]
        for field, prefix in zip(fields, prefixes, strict=True):
            length = len(names[field]) + 2 + table.length(row, field)
            total += length
            shared += length if prefix in seen else 0
        seen.update(prefixes)
    return shared / total if total else 0.0


def best_hits(table: Table) -> int:
    """The highest PHC of all schedules, by trying every row order and all field orders."""
    orders = list(permutations(range(len(table.classes))))
    best = 0
    for rows in permutations(range(len(table.cells))):
        reached = dict.fromkeys(orders, 0)
        for before, row in pairwise(rows):
            reached = {
                fields: max(
                    score + hits(table, [(before, list(fields_before)), (row, list(fields))])
                    for fields_before, score in reached.items()
                )
                for fields in orders
            }
        best = max(best, *reached.values())
    return best
