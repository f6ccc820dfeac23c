"""`fixed`: one order of columns for all rows."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given

from relquery.reordering.encode import encode
from relquery.reordering.reorder import reorder
from tests.reordering import reference
from tests.reordering.strategies import tables


@given(tables())
def test_all_rows_have_one_order_of_columns_and_are_sorted_by_it(table: reference.Table) -> None:
    schedule = reorder(table.columns, "fixed", table.dependencies)
    assert len({tuple(fields) for fields in schedule.fields.tolist()}) <= 1
    sent = [
        tuple(table.item(row, field) for field in fields)
        for row, fields in reference.sent_by(schedule)
    ]
    for depth in range(1, len(table.classes) + 1):
        starts = [row[:depth] for row in sent]
        changes = sum(a != b for a, b in pairwise(starts))
        assert changes == max(len(set(starts)) - 1, 0)  # equal beginnings stand together


def test_dependencies_that_overlap_are_one() -> None:
    numbers = range(40)
    data = {
        "a": [str(i % 5) for i in numbers],
        "x": [str(i % 3) * 3 for i in numbers],
        "b": [str(i % 5) * 2 for i in numbers],
        "y": [str(i % 2) * 4 for i in numbers],
        "c": [str(i % 5) * 3 for i in numbers],
    }
    schedule = reorder(encode(data), "fixed", [("a", "b"), ("b", "c")])
    places = sorted(schedule.fields[0].tolist().index(column) for column in (0, 2, 4))
    assert places[2] - places[0] == 2


def test_the_column_with_most_hits_per_prefix_split_comes_first() -> None:
    numbers = range(60)
    data = {
        "unique": [f"a very long text, number {i}" for i in numbers],
        "short": [str(i % 30) for i in numbers],
        "long": [f"ten characters {i % 3}" for i in numbers],
    }
    assert reorder(encode(data), "fixed").fields[0].tolist() == [2, 1, 0]
