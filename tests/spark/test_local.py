"""Expressions that tasks compute are those of one machine."""

from __future__ import annotations

import pyarrow as pa
import pytest

from relquery.errors import QueryError
from relquery.spark.asks import Local
from relquery.sql import names as ours

NUMBERS = pa.schema([("n", pa.int32())])
ROWS = pa.table({"answer": ["12", " 7 ", "0x1F", "nan", None, "```\n5\n```"]})


def _over(sql: str, schema: pa.Schema, zone: str = "UTC") -> pa.Table:
    batches = Local(sql, schema, zone).over(iter(ROWS.to_batches(max_chunksize=2)))
    return pa.Table.from_batches(batches, schema)


def test_answers_are_read_by_the_rule_of_one_machine() -> None:
    number = f"TRY_CAST({ours.DECIMAL}(answer) AS DOUBLE)"
    schema = pa.schema([("number", pa.float64())])
    found = _over(f"SELECT {number} AS number FROM {ours.ROWS}", schema)
    assert found.column(0).to_pylist() == [12.0, 7.0, None, None, None, 5.0]


def test_what_it_gives_has_the_types_that_were_said() -> None:
    schema = pa.schema([("length", pa.int32())])
    assert _over(f"SELECT length(answer) AS length FROM {ours.ROWS}", schema).schema == schema


def test_times_are_written_in_the_zone_of_the_session() -> None:
    sql = f"SELECT CAST(to_timestamp(0) AS VARCHAR) AS text FROM {ours.ROWS} LIMIT 1"
    schema = pa.schema([("text", pa.string())])
    utc, tokyo = (_over(sql, schema, zone).column(0)[0].as_py() for zone in ("UTC", "Asia/Tokyo"))
    assert utc.startswith("1970-01-01 00:00:00")
    assert tokyo.startswith("1970-01-01 09:00:00")


def test_an_error_is_one_of_ours() -> None:
    with pytest.raises(QueryError):
        _over(
            f"SELECT CAST(answer AS INTEGER) AS n FROM {ours.ROWS}", pa.schema([("n", pa.int32())])
        )
