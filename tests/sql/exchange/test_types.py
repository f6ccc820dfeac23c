"""A value of any type of DuckDB leaves the database whole, whatever it leaves it as."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.cli.terminal import to_json
from relquery.connection import Connection, connect
from relquery.sql.exchange.python import for_csv, for_parquet, holds
from relquery.sql.result import Result
from tests.cases import values
from tests.sql.fakes import FakeBackend

# Read as DuckDB's own Python client reads them.
AS_DUCKDB = values(__file__, "as_duckdb.txt")
PLAIN: list[tuple[str, Any]] = values(__file__, "plain.txt", pa=pa)


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with connect(FakeBackend(lambda query, fields: "7"), ledger=None) as connection:
        yield connection


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # NaN is not itself


def columns(values: Sequence[str]) -> str:
    """SELECT with a column for each value, and a second row of NULL."""
    names = [f"{value} AS c{at}" for at, value in enumerate(values)]
    return f"SELECT {', '.join(names)}, '7' AS answer UNION ALL SELECT {'NULL, ' * len(names)}'x'"


def test_values_in_python_are_those_that_duckdb_gives(
    con: Connection, plain: duckdb.DuckDBPyConnection
) -> None:
    wanted, _ = plain.execute(columns(AS_DUCKDB)).fetchall()
    asked = columns(AS_DUCKDB).replace("'7' AS", "LLM('Say 7') AS")
    got, empty = con.sql(asked).fetchall()
    assert empty == (*[None] * len(AS_DUCKDB), "x")
    for value, one, other in zip([*AS_DUCKDB, "'7'"], got, wanted, strict=True):
        assert same(one, other), value


LEAVES = [
    ["INTERVAL '14 months -1 second'", "INTERVAL '5 years'", "NULL::INTERVAL"],
    ["'00000000-0000-0000-0000-00000000000a'::UUID", "NULL::UUID"],
    ["5::HUGEINT", "-3::HUGEINT"],
    ["'101'::BIT", "'0'::BIT"],
    ["'2024-02-29'::DATE", "NULL::DATE"],
    ["'12:30:00+02'::TIMETZ"],
    ["1.50::DECIMAL(9, 2)", "NULL::DECIMAL(9, 2)"],
]


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Texts of values of one nested type. inner: of those of the types inside."""
    pairs = st.tuples(inner, inner)
    return st.one_of(
        inner.map(
            lambda one: st.lists(one, min_size=1, max_size=3).map(", ".join).map("[{}]".format)
        ),
        inner.map(lambda one: st.builds("array_value({}, {})".format, one, one)),
        inner.map(lambda one: st.builds("union_value(u := {})".format, one)),
        pairs.map(lambda two: st.builds("row({}, {})".format, *two)),
        pairs.map(lambda two: st.builds("{{'size': {}, 'b b': {}}}".format, *two)),
        pairs.map(lambda two: st.builds("MAP {{row(1, {}): {}}}".format, *two)),
        inner.map(lambda one: st.builds("MAP {{'k': {}}}".format, one)),
    )


@given(
    st.recursive(st.sampled_from(LEAVES).map(st.sampled_from), nested, max_leaves=4).flatmap(
        lambda one: st.lists(one, min_size=2, max_size=2)
    )
)
def test_nested_values_in_python_are_those_that_duckdb_gives(
    con: Connection, plain: duckdb.DuckDBPyConnection, two: list[str]
) -> None:
    query = f"SELECT unnest([{two[0]}, NULL, {two[1]}])"
    result, wanted = con.sql(query), plain.sql(query).fetchall()
    assert result.fetchall() == wanted
    assert replace(result, table=result.table.slice(1)).fetchall() == wanted[1:]


def test_an_interval_beyond_python_is_plain(con: Connection) -> None:
    long = pa.MonthDayNano([9999999 * 12, 0, 0])
    assert con.sql("SELECT INTERVAL '9999999 years', 1").fetchall() == [(long, 1)]


def test_tables_and_json_show_plain_values(con: Connection) -> None:
    got, empty = con.sql(columns([value for value, _ in PLAIN])).plain()
    assert list(got) == [*(wanted for _, wanted in PLAIN), "7"]
    assert empty == (*[None] * len(PLAIN), "x")


def test_no_form_of_a_result_fails_or_holds_bytes_that_only_duckdb_reads(
    con: Connection, tmp_path: Path
) -> None:
    values = [*AS_DUCKDB, *(value for value, _ in PLAIN)]
    result = con.sql(columns([*values, "1"]).replace("'7' AS answer", "'7' AS c0"))
    assert len(result.df()) == len(result.pl()) == 2
    assert repr(result)
    assert result._repr_html_()
    json.loads(to_json(result.plain()))
    names = [f"n{at}" for at in range(len(values) + 2)]
    pa_csv.write_csv(for_csv(result.table, names), tmp_path / "a.csv")
    pq.write_table(for_parquet(result.table, names), tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").column_names == names
    for value, field in zip(values, result.arrow().schema, strict=False):
        if not any(one in value for one in ("BLOB", "GEOMETRY")):
            assert not holds(field.type, pa.types.is_binary), value


def test_what_arrow_has_no_type_for_is_text(con: Connection) -> None:
    for value, text in [
        ("'101'::BIT", "101"),
        ("'12'::BIGNUM", "12"),
        ("{'a': 1}::VARIANT", '{"a":1}'),
        ("'12:30:00+02'::TIMETZ", "12:30:00+02"),
        ("340282366920938463463374607431768211455::UHUGEINT", str(2**128 - 1)),
    ]:
        result = con.sql(f"SELECT {value} AS a")
        assert result.arrow().to_pylist() == [{"a": text}]
        assert result.pl().item() == text


def first(result: Result) -> Any:
    return result.df().iloc[0, 0]


def test_a_frame_keeps_every_digit_beside_null(con: Connection) -> None:
    for kind in ["BIGINT", "HUGEINT", "UBIGINT"]:
        result = con.sql(f"SELECT 9007199254740993::{kind} AS a UNION ALL SELECT NULL")
        assert int(first(result)) == int(result.pl()["a"][0]) == 9007199254740993
        assert result.df().isna().iloc[1, 0]
        huge = con.sql("SELECT 170141183460469231731687303715884105727 AS a")
        assert int(first(huge)) == int(huge.pl()["a"][0]) == 2**127 - 1


def test_a_column_of_small_numbers_is_a_plain_one_in_pandas(con: Connection) -> None:
    frame = con.sql("SELECT sum(1) AS a, 1 AS b, NULL::INT AS c").df()
    assert [str(kind) for kind in frame.dtypes] == ["int64", "int32", "float64"]


def test_dates_beside_one_that_python_has_not_stay_dates(con: Connection) -> None:
    rows = con.sql("SELECT unnest(['infinity'::DATE, DATE '2024-02-29', NULL])").plain()
    assert rows == [("infinity",), (date(2024, 2, 29),), (None,)]


def test_an_answer_of_such_a_type_reads_alike(con: Connection) -> None:
    con.sql("CREATE TABLE o AS SELECT LLM('?')::BIGNUM AS n, LLM('?')::VARIANT AS v")
    assert con.sql("SELECT n, v, LLM('?')::HUGEINT FROM o").fetchall() == [("7", "7", 7)]


def test_an_answer_in_json_keeps_every_digit() -> None:
    number = '{"z":2512292042121000001.123456789,"e":1.50e3}'
    with connect(FakeBackend(lambda query, fields: f'{{"a": {number}}}'), ledger=None) as con:
        result = con.sql("SELECT LLM('?', output := 'a JSON'), [LLM('?', output := 'JSON')]")
    assert result.fetchall() == [({"a": number}, [f'{{"a":{number}}}'])]


def test_times_with_a_zone_keep_it(con: Connection) -> None:
    zone = timezone(timedelta(hours=2))
    assert con.sql("SELECT '12:30:00+02'::TIMETZ").fetchall() == [(time(12, 30, tzinfo=zone),)]


def test_no_digit_is_lost_in_json() -> None:
    values = [Decimal("1.50"), Decimal("9007199254740993.25"), 2**64, pa.MonthDayNano([1, 2, 3])]
    assert json.loads(to_json(values)) == [
        1.5, "9007199254740993.25", 2**64, {"months": 1, "days": 2, "nanoseconds": 3},
    ]  # fmt: skip
