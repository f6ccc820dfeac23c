"""PHC and PHR against their definitions, for any schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table import reference
from tests.table.strategies import columns_of, names_of, tables

from relquery.table.columns import encode
from relquery.table.measure import phc, phr


@settings(deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_any_schedule_is_measured_by_the_definition(table: reference.Table, random: object) -> None:
    order = list(range(len(table.cells)))
    random.shuffle(order)
    sent = [(row, random.sample(range(len(table.classes)), len(table.classes))) for row in order]
    rows = np.array(order, dtype=np.int64)
    fields = np.array([fields for _, fields in sent], dtype=np.int16)
    fields = fields.reshape(len(order), len(table.classes))
    columns = columns_of(table)
    assert phc(columns, rows, fields) == reference.hits(table, sent)
    expected = reference.hit_rate(table, names_of(table), sent)
    assert phr(columns, rows, fields) == pytest.approx(expected)


def test_the_papers_example_counts_squared_lengths_of_leading_cells() -> None:
    columns = encode({"a": ["xx", "xx", "y"], "b": ["zzz", "zzz", "zzz"]})
    rows = np.arange(3, dtype=np.int64)
    fields = np.array([[0, 1], [0, 1], [0, 1]], dtype=np.int16)
    assert phc(columns, rows, fields) == 2**2 + 3**2


def test_a_value_at_the_same_place_of_another_field_is_no_hit() -> None:
    columns = encode({"a": ["xx", "xx"], "b": ["xx", "xx"]})
    rows = np.arange(2, dtype=np.int64)
    assert phc(columns, rows, np.array([[0, 1], [1, 0]], dtype=np.int16)) == 0


def test_the_hit_rate_looks_at_every_row_sent_before() -> None:
    columns = encode({"a": ["one", "two", "one"]})
    rows = np.arange(3, dtype=np.int64)
    fields = np.zeros((3, 1), dtype=np.int16)
    assert phc(columns, rows, fields) == 0
    assert phr(columns, rows, fields) == pytest.approx(1 / 3)
