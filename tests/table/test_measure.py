"""PHC and PHR against their definitions, for any schedule."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relquery.table.columns import encode
from relquery.table.items import Items, itemize
from relquery.table.measure import Hits, hits, phc
from tests.table import reference
from tests.table.strategies import bags_of, columns_of, names_of, tables


def items_of(
    data: dict[str, list[str | None]], bags: list[list[str]] | None = None
) -> tuple[Items, np.ndarray, np.ndarray]:
    """Items, and a schedule that sends the table as it is."""
    items = itemize(encode(data), bags or [])
    slots, rows = items.slots.shape
    return items, np.arange(rows), np.tile(np.arange(slots, dtype=np.int16), (rows, 1))


@settings(max_examples=300)
@given(tables(bags=True), st.randoms(use_true_random=False))
def test_any_schedule_is_measured_by_the_definition(table: reference.Table, random: Random) -> None:
    order = list(range(len(table.cells)))
    random.shuffle(order)
    columns = len(table.classes)
    sent = [(row, random.sample(range(columns), columns)) for row in order]
    rows = np.array(order, dtype=np.int64)
    fields = np.array([fields for _, fields in sent], dtype=np.int16).reshape(len(order), columns)
    items = itemize(columns_of(table), bags_of(table))
    assert phc(items, rows, fields) == reference.hits(table, sent)
    expected = reference.hit_rate(table, names_of(table), sent)
    assert hits(items, rows, fields).rate == pytest.approx(expected)


def test_the_papers_example_counts_squared_lengths_of_leading_cells() -> None:
    schedule = items_of({"a": ["xx", "xx", "y"], "b": ["zzz", "zzz", "zzz"]})
    assert phc(*schedule) == 2**2 + 3**2


def test_a_value_at_the_same_place_of_another_column_is_no_hit() -> None:
    items, rows, _ = items_of({"a": ["xx", "xx"], "b": ["xx", "xx"]})
    fields = np.array([[0, 1], [1, 0]], dtype=np.int16)
    assert phc(items, rows, fields) == hits(items, rows, fields).hit == 0


def test_a_passage_of_a_bag_hits_in_whatever_column_it_stands() -> None:
    items, rows, _ = items_of({"a": ["xx", "y"], "b": ["zzz", "xx"]}, [["a", "b"]])
    fields = np.array([[0, 1], [1, 0]], dtype=np.int16)
    assert phc(items, rows, fields) == 2**2
    assert hits(items, rows, fields).hit == len("passage: xx") + len("passage: ")


def test_the_hit_rate_looks_at_every_row_sent_before() -> None:
    schedule = items_of({"a": ["one", "two", "one"]})
    assert phc(*schedule) == 0
    shared, sent = len("a: ") + len("a: one"), 3 * len("a: one")
    assert hits(*schedule).rate == pytest.approx(shared / sent)


def test_the_first_items_that_differ_hit_as_far_as_they_agree() -> None:
    schedule = items_of({"a": ["same", "same"], "b": ["2024-01", "2024-11"], "c": ["z", "z"]})
    assert hits(*schedule).hit == len("a: same") + len("b: 2024-")


def test_an_item_that_another_continues_ends_the_hit() -> None:
    schedule = items_of({"a": ["day", "daylight"], "b": ["z", "z"]})
    assert hits(*schedule).hit == len("a: day")


def test_depths_add_up_to_the_hits_and_say_where_rows_part() -> None:
    found: Hits = hits(*items_of({"a": ["x", "x", "y"], "b": ["1", "2", "2"], "c": ["z"] * 3}))
    assert [depth.prefixes for depth in found.depths] == [2, 3, 3]
    assert [depth.rows for depth in found.depths] == [1, 0, 0]
    assert [depth.hit_characters for depth in found.depths] == [4 + 3, 3, 0]
    assert found.hit == 10


def test_nothing_sent_hits_nothing() -> None:
    assert hits(*items_of({"a": []})).rate == 0
    assert phc(*items_of({})) == 0
