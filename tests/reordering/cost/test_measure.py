"""PHC and PHR against their definitions, for any schedule."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.reordering.cost.measure import CharacterHits, hits, phc
from relquery.reordering.encode import encode
from relquery.reordering.items import Items, itemize
from tests.reordering import reference
from tests.reordering.strategies import tables


def items_of(
    data: dict[str, list[str | None]], bags: list[list[str]] | None = None
) -> tuple[Items, np.ndarray, np.ndarray]:
    """Items, and a schedule that sends the table as it is."""
    items = itemize(encode(data), bags or [])
    slots, rows = items.slots.shape
    return items, np.arange(rows), np.tile(np.arange(slots, dtype=np.int16), (rows, 1))


@given(tables(bags=True), st.randoms(use_true_random=False))
def test_any_schedule_is_measured_by_the_definition(table: reference.Table, random: Random) -> None:
    columns = len(table.classes)
    order = random.sample(range(len(table.cells)), len(table.cells))
    sent = [(row, random.sample(range(columns), columns)) for row in order]
    rows = np.array(order, dtype=np.int64)
    fields = np.array([fields for _, fields in sent], dtype=np.int16).reshape(len(order), columns)
    items = itemize(table.columns, table.bags)
    assert phc(items, rows, fields) == reference.hits(table, sent)
    expected = reference.hit_rate(table, sent)
    assert hits(items, rows, fields).rate == pytest.approx(expected)


def test_a_value_in_another_column_hits_only_if_they_are_a_bag() -> None:
    fields = np.array([[0, 1], [1, 0]], dtype=np.int16)
    items, rows, _ = items_of({"a": ["xx", "xx"], "b": ["xx", "xx"]})
    assert phc(items, rows, fields) == hits(items, rows, fields).hit == 0
    items, rows, _ = items_of({"a": ["xx", "y"], "b": ["zzz", "xx"]}, [["a", "b"]])
    assert phc(items, rows, fields) == 2**2
    assert hits(items, rows, fields).hit == len("passage: xx") + len("passage: ")


def test_leading_cells_hit_as_far_as_any_earlier_row_agrees() -> None:
    cases: list[tuple[dict[str, list[str | None]], int, int]] = [
        ({"a": ["xx", "xx", "y"], "b": ["zzz"] * 3}, 2**2 + 3**2, len("a: xxb: zzza: ")),
        ({"a": ["one", "two", "one"]}, 0, len("a: a: one")),  # not only the row before
        (
            {"a": ["same"] * 2, "b": ["2024-01", "2024-11"], "c": ["z"] * 2},
            16,
            len("a: sameb: 2024-"),
        ),
        ({"a": ["day", "daylight"], "b": ["z", "z"]}, 0, len("a: day")),
    ]
    for data, squared, characters in cases:
        schedule = items_of(data)
        assert phc(*schedule) == squared
        assert hits(*schedule).hit == characters
    sent = 3 * len("a: one")
    assert hits(*items_of(cases[1][0])).rate == pytest.approx(cases[1][2] / sent)


def test_depths_add_up_to_the_hits_and_say_where_rows_part() -> None:
    found: CharacterHits = hits(
        *items_of({"a": ["x", "x", "y"], "b": ["1", "2", "2"], "c": ["z"] * 3})
    )
    assert [depth.prefixes for depth in found.depths] == [2, 3, 3]
    assert [depth.rows for depth in found.depths] == [1, 0, 0]
    assert [depth.hit_characters for depth in found.depths] == [4 + 3, 3, 0]
    assert found.hit == 10


def test_nothing_sent_hits_nothing() -> None:
    assert hits(*items_of({"a": []})).rate == 0
    assert phc(*items_of({})) == 0
