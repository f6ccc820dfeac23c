"""Small tables with what makes reordering hard: repeats, NULL, empty text, broken dependencies."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st
from tests.table.reference import Table

from relquery.table.columns import Columns, encode

VALUES = [None, "", "a", "bb", "ccc", "dddd", "é😀", 'q"{}', "nul\0"]


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 9, max_columns: int = 4) -> Table:
    rows = draw(st.integers(0, max_rows))
    columns = draw(st.integers(1 if rows else 0, max_columns))
    row = st.lists(st.sampled_from(VALUES), min_size=columns, max_size=columns)
    cells = draw(st.lists(row, min_size=rows, max_size=rows))
    classes = draw(st.lists(st.integers(0, 3), min_size=columns, max_size=columns))
    return Table(cells, classes)


def names_of(table: Table) -> list[str]:
    return [f"column {i}" for i in range(len(table.classes))]


def columns_of(table: Table) -> Columns:
    arrays = [
        pa.array([row[i] for row in table.cells], pa.string()) for i in range(len(table.classes))
    ]
    return encode(pa.table(arrays, names=names_of(table)))


def dependencies_of(table: Table) -> list[tuple[str, ...]]:
    names = names_of(table)
    groups = [
        tuple(name for name, which in zip(names, table.classes, strict=True) if which == group)
        for group in range(4)
    ]
    return [group for group in groups if len(group) > 1]
