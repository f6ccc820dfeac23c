"""Values that JSON does not have are written so that nothing is lost."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.serve.errors import to_json
from relquery.serve.sql_workers.jobs import plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**53, 2**53),
        (-(2**53) - 1, "-9007199254740993"),
        (0.5, 0.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Decimal("1.20"), "1.20"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 2, 29, 1, 2, 3), "2024-02-29T01:02:03"),
        (timedelta(days=1, seconds=2), "1 day, 0:00:02"),
        (b"\x00\xff", "AP8="),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({"a": (1, Decimal("2.5"))}, {"a": [1, "2.5"]}),
        ({1: "x", None: "y"}, {"1": "x", "null": "y"}),
    ],
)
def test_a_value_becomes_one_that_json_has(value: object, expected: object) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


@cache
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


COUNTS = st.integers(-(2**31) + 1, 2**31 - 1)


@given(COUNTS, COUNTS, st.integers(-(10**15), 10**15))
def test_an_interval_is_written_as_duckdb_writes_it(months: int, days: int, micros: int) -> None:
    interval = pa.MonthDayNano([months, days, micros * 1000])
    table = pa.table({"a": pa.array([interval], pa.month_day_nano_interval())})
    text = plain(interval)
    database().register("t", table)
    assert database().sql("SELECT a::VARCHAR FROM t").fetchall() == [(text,)]


def test_half_a_character_is_written() -> None:
    assert json.loads(to_json({"answer": "\ud83d"})) == {"answer": "\ud83d"}
