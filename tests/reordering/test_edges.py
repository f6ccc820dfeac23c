"""Tables at the edge, for every method: empty, equal, distinct, wide, and with huge cells."""

from __future__ import annotations

import datetime
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from relquery.config import ORDERS, Order
from relquery.reordering.encode import encode
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Schedule
from tests.pace import pace, within

HUGE = "x" * 5_000_000
EDGES = {
    "nothing": pa.table({}),
    "no rows": pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.int64())}),
    "one row": pa.table({"a": ["x"], "b": ["y"], "c": ["x"]}),
    "one cell": pa.table({"a": ["x"]}),
    "one column": pa.table({"a": ["x", "x", None, "", "y", None]}),
    "same name": pa.table([["1", "2", "1"], ["1", "2", "2"]], names=["a", "a"]),
    "NULL": pa.table({"a": pa.nulls(3), "b": pa.nulls(3)}),
    "empty text": pa.table({"a": ["", "", None], "b": [None, "", ""]}),
    "equal": pa.table({"a": ["same"] * 5, "b": ["same"] * 5}),
    "long": pa.table({"a": ["x " * 5000, "y", "x " * 5000], "b": ["y", "y", "z"]}),
    "types": pa.table(
        {
            "int": [1, 2, None],
            "float": [0.5, 0.5, float("nan")],
            "bool": [True, None, True],
            "date": [datetime.date(2024, 2, 29)] * 3,
            "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
        }
    ),
}


def check(schedule: Schedule, rows: int, columns: int) -> None:
    assert sorted(schedule.rows) == list(range(rows))
    assert schedule.fields.shape == (rows, columns)
    assert (np.sort(schedule.fields, axis=1) == np.arange(columns)).all()
    assert 0 <= schedule.report.phr <= 1


@pytest.mark.parametrize("name", EDGES)
def test_tables_at_the_edge_are_ordered_too_by_every_method_with_bags_and_prices(name: str) -> None:
    table = EDGES[name]
    for method in ORDERS:
        check(reorder(table, method), *table.shape)
        if table.column_names[:2] == ["a", "b"]:
            check(reorder(table, method, bags=[["a", "b"]]), *table.shape)
    schedule = reorder(table, "tree", weight="gpt-4o-mini", cache_tokens=1600)
    check(schedule, *table.shape)
    assert schedule.report.bill is not None
    assert schedule.report.bill.savings >= 0


def test_equal_cells_of_five_megabytes_hit_whatever_the_method() -> None:
    table = pa.table({"a": [HUGE, "y", HUGE], "b": [HUGE, HUGE + "z", "y"]})
    for method in ORDERS:
        check(reorder(table, method), 3, 2)
        check(reorder(table, method, bags=[["a", "b"]]), 3, 2)
    report = reorder(table, bags=[["a", "b"]]).report
    assert report.phc >= len(HUGE) ** 2
    assert report.phr > 0.24  # two of the three cells that begin alike are in one row


@pytest.mark.long
@pytest.mark.parametrize("method", ["original", "fixed", "ggr", "tree"])
def test_thousands_of_rows_are_ordered_in_seconds(method: Order) -> None:
    distinct = {name: [f"{name}{i * 7919 % 4001}" for i in range(4000)] for name in "abcd"}
    for weight in ("squared", "tokens"):
        with within(10):
            schedule = reorder(distinct, method, weight=weight)
        check(schedule, 4000, 4)
        assert schedule.report.phc == 0
    equal = {"a": ["same"] * 4000, "b": ["the same"] * 4000, "c": [None] * 4000}
    with within(10):
        report = reorder(equal, method, bags=[["a", "c"]]).report
    assert report.phc == 3999 * (4**2 + 8**2)
    assert report.phr == pytest.approx(3999 / 4000)


@pytest.mark.long
@pytest.mark.parametrize(("rows", "columns"), [(20_000, 100), (500, 2000)])
def test_seconds_bound_the_processor_time_of_wide_tables(rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    table = encode(
        pa.table(
            [rng.integers(0, kinds, rows) for kinds in rng.integers(3, 51, columns)],
            list(map(str, range(columns))),
        )
    )
    start = time.process_time()
    reorder(table, seconds=0)  # one pass of each start, which no limit bounds
    passes = (time.process_time() - start) / pace()
    with within(1.5 + 1.5 * passes):
        schedule = reorder(table, seconds=1)
    check(schedule, rows, columns)


def test_pandas_and_polars_tables_are_ordered_like_arrow_tables() -> None:
    data = {"a": ["x", "y", "x", None], "n": [1, 2, 1, 2]}
    expected = reorder(pa.table(data))
    for table in (pd.DataFrame(data), pl.DataFrame(data), data, encode(data)):
        schedule = reorder(table)
        assert np.array_equal(schedule.rows, expected.rows)
        assert np.array_equal(schedule.fields, expected.fields)
        assert schedule.report.phr == expected.report.phr
