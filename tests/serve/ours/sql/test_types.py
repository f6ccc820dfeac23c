"""A value of any type of DuckDB is answered so that it can be read again, or refused."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.serve.errors import as_http
from relquery.serve.ours.sql.desk import Desk
from relquery.serve.ours.sql.results import Answered
from relquery.serve.ours.sql.tables import Tables
from relquery.serve.ours.stopping import Stopping
from relquery.sql.result import Result
from tests.sql.fakes import FakeBackend

LARGEST = 2**127 - 1
# By the name of the type in DuckDB's list of types. Nested ones are made of these.
VALUES: dict[str, tuple[str, ...]] = {
    "BIGINT": ("9007199254740993", "-9223372036854775808"),
    "BIGNUM": (f"'{10**45}'::BIGNUM", "'-7'::BIGNUM"),
    "BIT": ("'101'::BIT",),
    "BLOB": ("'\\x00\\xff'::BLOB", "''::BLOB"),
    "BOOLEAN": ("true",),
    "DATE": ("DATE '2024-02-29'", "'infinity'::DATE", "'0044-03-15 (BC)'::DATE"),
    "DECIMAL": (f"'{10**37}'::DECIMAL(38, 0)", "1.5::DECIMAL(38, 37)"),
    "DOUBLE": ("0.1::DOUBLE", "'nan'::DOUBLE", "'-inf'::DOUBLE"),
    "ENUM": ("'it''s \"q\"'::ENUM('a', 'it''s \"q\"')",),
    "FLOAT": ("0.5::FLOAT", "'inf'::FLOAT"),
    "GEOMETRY": ("'POINT(1 2)'::GEOMETRY",),
    "HUGEINT": ("1::HUGEINT", f"{LARGEST}::HUGEINT", f"(-{LARGEST + 1})::HUGEINT"),
    "INTEGER": ("1",),
    "INTERVAL": (
        "INTERVAL '14 months -3 days 1.5 seconds'",
        "INTERVAL '-1 year 1 month'",
        "INTERVAL '-100 hours'",
        "INTERVAL 0 DAY",
    ),
    "NULL": ("NULL",),
    "SMALLINT": ("1::SMALLINT",),
    "TIME": ("TIME '10:00'", "TIME '24:00:00'"),
    "TIME WITH TIME ZONE": ("TIMETZ '10:00:00.5-02:30'", "TIMETZ '24:00:00+15:59:59'"),
    "TIMESTAMP": ("TIMESTAMP '2024-02-29 01:02:03.000004'", "'-infinity'::TIMESTAMP"),
    "TIMESTAMP WITH TIME ZONE": ("TIMESTAMPTZ '2024-02-29 01:02:03+05'", "'infinity'::TIMESTAMPTZ"),
    "TIMESTAMPTZ_NS": ("'2024-02-29 01:02:03+05'::TIMESTAMPTZ_NS", "'infinity'::TIMESTAMPTZ_NS"),
    "TIMESTAMP_MS": ("TIMESTAMP_MS '2024-02-29'", "'infinity'::TIMESTAMP_MS"),
    "TIMESTAMP_NS": (
        "TIMESTAMP_NS '2024-02-29 00:00:00.123456789'",
        "'infinity'::TIMESTAMP_NS",
        "'-infinity'::TIMESTAMP_NS",
    ),
    "TIMESTAMP_S": ("TIMESTAMP_S '2024-02-29'", "'infinity'::TIMESTAMP_S"),
    "TIME_NS": ("'10:00:00.123456789'::TIME_NS", "'24:00:00'::TIME_NS"),
    "TINYINT": ("1::TINYINT",),
    "TYPE": ("get_type(1)",),
    "UBIGINT": ("18446744073709551615::UBIGINT",),
    "UHUGEINT": (f"'{2**128 - 1}'::UHUGEINT",),
    "UINTEGER": ("1::UINTEGER",),
    "USMALLINT": ("1::USMALLINT",),
    "UTINYINT": ("1::UTINYINT",),
    "UUID": ("'00000000-0000-0000-0000-000000000001'::UUID",),
    "VARCHAR": ("'tea'", "chr(0)", "''", "'{\"a\": 1}'::JSON"),
    "VARIANT": ("42::VARIANT", "'x'::VARIANT", "'nan'::DOUBLE::VARIANT"),
}
NESTED = {"ARRAY", "LIST", "MAP", "STRUCT", "TUPLE", "UNION"}
REFUSED = {"TYPE"}
FORMS = [
    "[VALUE, NULL]", "[[VALUE], [], NULL]", "[VALUE]::TYPE[1]",
    "{'a b': VALUE, 'c': {'d': VALUE}}", "row(VALUE, ())", "[row(VALUE)]", "MAP {'k': VALUE}",
    "MAP {1: [VALUE]}",
]  # fmt: skip
ALL = [(kind, value) for kind, values in VALUES.items() for value in values]


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    """A connection as statements of clients have it."""
    desk, backend = Desk(Tables({}, "1GB")), FakeBackend(lambda query, fields: "7")
    with desk.connection(backend, lambda: None, Stopping()) as connection:
        yield connection
    desk.close()


def answered(con: Connection, *values: str) -> Answered:
    result = con.sql(f"SELECT {', '.join(f'{value} AS a' for value in values)}")
    assert isinstance(result, Result)
    return Answered.of(result, con)


def given(con: Connection, *values: str) -> list[Any]:
    """The values as a client reads them from JSON; as lines and in Arrow they can be read too."""
    found = answered(con, *values)
    assert [line["type"] for line in found.lines()] == ["columns", "rows", "report", "errors"]
    table = pa.ipc.open_stream(found.arrow()).read_all()
    assert table.shape == (1, len(values))
    row: list[Any]
    (row,) = json.loads(found.whole())["rows"]
    return row


def test_every_type_that_duckdb_lists_has_a_value_here() -> None:
    kinds = {kind for (kind,) in duckdb.sql("SELECT logical_type FROM duckdb_types()").fetchall()}
    assert kinds == {*VALUES, *NESTED}


@pytest.mark.parametrize(("kind", "value"), ALL)
def test_duckdb_reads_the_value_again(kind: str, value: str, con: Connection) -> None:
    if kind in REFUSED:
        with pytest.raises(QueryError) as caught:
            answered(con, value)
        assert (as_http(caught.value).status, kind in str(caught.value)) == (400, True)
        return
    (text,) = given(con, value)
    with duckdb.connect() as plain:
        (typed,) = plain.execute(f"SELECT typeof({value})").fetchone() or ()
        read, wanted = f"CAST(? AS {typed})", value
        if kind in ("BLOB", "GEOMETRY"):
            text, read = b64decode(text), "?::BLOB"
            wanted = f"ST_AsWKB({value})" if kind == "GEOMETRY" else value
        elif kind in ("NULL", "VARIANT"):
            text, read = text if text is None else str(text), "?"
            wanted = f"({value})::VARCHAR"
        same = plain.execute(f"SELECT {read} IS NOT DISTINCT FROM ({wanted})", [text])
        assert same.fetchall() == [(True,)]


@pytest.mark.parametrize(("kind", "value"), [pair for pair in ALL if pair[0] not in REFUSED])
def test_a_value_inside_others_is_written_as_alone(kind: str, value: str, con: Connection) -> None:
    typed = "INT" if kind == "NULL" else duckdb.sql(f"SELECT typeof({value})").fetchall()[0][0]
    forms = [each.replace("TYPE", typed).replace("VALUE", value) for each in FORMS]
    alone, in_union, *nested = given(con, value, f"union_value(a := {value})", *forms)
    for found in nested:
        assert alone in leaves(found)
    assert (in_union is None) == (alone is None)


def test_odd_values_are_whole(con: Connection) -> None:
    odd = {
        "()": {},
        "row()": {},
        "struct_pack()": {},
        "[(), NULL]": [{}, None],
        "{'a': (), 'b': '1'::BIT}": {"a": {}, "b": "1"},
        "row('1'::BIT, 1::HUGEINT)": {"element1": "1", "element2": 1},
        "MAP {(): 1}": [[{}, 1]],
        "MAP {}": {},
        "MAP {[1]: 2}": [[[1], 2]],
        "MAP {{'a': 1}: 2}": [[{"a": 1}, 2]],
        "MAP {'infinity'::DATE: 1}": {"infinity": 1},
        "MAP {INTERVAL 1 DAY: 1}": {"1 day": 1},
        "MAP {'nan'::DOUBLE: 1}": {"nan": 1},
        "MAP {'x'::BLOB: 1}": {"eA==": 1},
        "NULL::STRUCT(a INT)": None,
        "NULL::MAP(DATE, INT)[]": None,
        "['infinity'::DATE, DATE '2024-02-29']": ["infinity", "2024-02-29"],
        "[INTERVAL '1 month']": ["1 month"],
    }
    assert dict(zip(odd, given(con, *odd), strict=True)) == odd


def leaves(value: Any) -> list[Any]:
    """The values in lists and objects."""
    if isinstance(value, dict):
        return leaves(list(value.values()))
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each)]
    return [value]
