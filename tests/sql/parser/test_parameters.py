"""Parameters: values of Python reach the query as values, and never as SQL text."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relquery.connection import Connection, connect
from tests.cases import values
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.fakes import FakeBackend

EVIL = values(__file__, "evil.txt")
VALUES: list[Any] = values(__file__, "values.txt", dt=dt, math=math, uuid=uuid, Decimal=Decimal)
NUMPY = [
    (np.int8(3), 3), (np.int64(2**40), 2**40), (np.uint64(2**63), 2**63), (np.float32(0.5), 0.5),
    (np.float64(1.5), 1.5), (np.bool_(True), True), (np.str_("a"), "a"), ([np.int16(1)], [1]),
]  # fmt: skip


Own = tuple[Connection, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def own() -> Iterator[Own]:
    """A connection of ours, and plain DuckDB beside it."""
    with connect(FakeBackend(upper_or_length)) as con, duckdb.connect() as plain:
        con.database.execute(SETUP)
        plain.execute(SETUP)
        yield con, plain


@pytest.mark.parametrize("start", range(0, len(VALUES), 10))
def test_a_value_and_its_type_are_those_that_duckdb_gives_it(start: int, own: Own) -> None:
    con, plain = own
    values = VALUES[start : start + 10]
    params = {f"v{at}": value for at, value in enumerate(values)}
    items = ", ".join(f"${name}, typeof(${name})" for name in params)
    query = f"SELECT {items} FROM films WHERE id = 1"
    wanted = plain.execute(query, params).fetchall()[0][1::2]
    without = con.sql(query, params).fetchall()[0]
    with_calls = con.sql(query.replace(" FROM", ", LLM('up', title) FROM"), params).fetchall()[0]
    for at, value in enumerate(values):
        found, kind = with_calls[2 * at], with_calls[2 * at + 1]
        assert without[2 * at + 1] == kind == wanted[at], value
        assert repr(found) == repr(without[2 * at]), value
        if type(value) in (bool, int, str, bytes, Decimal, dt.date, dt.datetime, dt.timedelta):
            assert found == value


def test_scalars_of_numpy_are_values_too(own: Own) -> None:
    con, _ = own
    params = [value for value, _ in NUMPY]
    items = ", ".join("?" for _ in NUMPY)
    wanted = tuple(plain for _, plain in NUMPY)
    assert con.sql(f"SELECT {items}, LLM('up', 'a')", params).fetchall() == [(*wanted, "A")]
    assert con.sql(f"SELECT {items}", params).fetchall() == [wanted]


def test_a_text_is_never_read_as_sql(own: Own) -> None:
    con, _ = own
    params = {f"t{at}": text for at, text in enumerate(EVIL)}
    texts = ", ".join(f"[${name}, LLM('up', ${name}), length(${name})::VARCHAR]" for name in params)
    rows = con.sql(f"SELECT {texts} FROM films WHERE id = 1 AND $t0 = $t0", params).fetchall()
    assert rows == [tuple([text, text.upper(), str(len(text))] for text in EVIL)]
    by_place = con.sql(f"SELECT {', '.join('?' * len(EVIL))} FROM films LIMIT 1", EVIL)
    assert by_place.fetchall() == [tuple(EVIL)]
    assert con.sql("SELECT count(*) FROM films").fetchall() == [(6,)]


@pytest.mark.long
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(text=st.text())
def test_any_text_comes_back_unchanged(text: str, own: Own) -> None:
    con, _ = own
    query = "SELECT LLM('up', $t), $t || '', [$t, 'b'], {'a': $t} WHERE $t IN ($t)"
    up, whole, listed, struct = con.sql(query, {"t": text}).fetchall()[0]
    assert (up, whole, listed, struct) == (text.upper(), text, [text, "b"], {"a": text})


def test_parameters_may_touch_what_follows(own: Own) -> None:
    con, plain = own
    for query in (
        "SELECT ?,?",
        "SELECT $1,$2",
        "SELECT $1||'$3,$'||$2",
        "SELECT $1||$tag$,$2,$$tag$||$2",
        "SELECT [$1,$2] /* $1,$ */ -- $2,$1",
        "SELECT upper($1),lower($2),E'\\'$1,$2'",
        'SELECT * FROM (VALUES ($1,$2)) AS t(a,"$b,$")',
    ):
        wanted = plain.execute(query, ["a", "B"]).fetchall()
        assert con.sql(query, ["a", "B"]).fetchall() == wanted, query
    query, values = "SELECT LLM('up', $a,$b),$a FROM films LIMIT 1", {"a": "x", "b": "y"}
    assert con.sql(query, values).fetchall() == [("X|Y", "x")]


def test_a_variable_can_be_set_to_a_parameter(own: Own) -> None:
    con, plain = own
    cases: list[tuple[str, Any]] = [
        ("$x", {"x": "it's"}), ("?", [5]), ("(SELECT $1 || 'b')", ["a"])
    ]  # fmt: skip
    for value, params in cases:
        query = f"SET VARIABLE v = {value}"
        con.sql(query, params)
        plain.execute(query, params)
        read = "SELECT getvariable('v'), upper(getvariable('v')::VARCHAR)"
        wanted = plain.execute(read).fetchall()
        assert con.sql(read.replace("upper(", "LLM('up', ")).fetchall() == wanted


def test_columns_are_named_as_in_duckdb(own: Own) -> None:
    con, plain = own
    cases: list[tuple[str, Any]] = [
        ("SELECT $a, $a + id FROM films", {"a": 1}), ("SELECT ?, ? + 1", [1, 2])
    ]  # fmt: skip
    for query, params in cases:
        plain.execute(query, params)
        wanted = [one[0] for one in plain.description]
        assert con.sql(query, params).columns == wanted
        calling = query.replace("SELECT ", "SELECT LLM('up', 'x'), ")
        assert con.sql(calling, params).columns == ["llm('up', 'x')", *wanted]


def test_an_integer_has_the_type_of_a_parameter(own: Own) -> None:
    con, plain = own
    query = "SELECT typeof(1::TINYINT + $n), 100::TINYINT + $n"
    wanted = plain.execute(query, {"n": 100}).fetchall()[0]
    assert con.sql(f"{query}, LLM('up', 'x')", {"n": 100}).fetchall()[0][:2] == wanted
