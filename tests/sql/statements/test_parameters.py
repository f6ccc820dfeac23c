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
from relquery.errors import QueryError
from relquery.prompt import Compared
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.fakes import FakeBackend

EVIL = [
    "'; DROP TABLE films; --",
    "''",
    "\\'",
    '"',
    "$1 ? $name",
    "a\0b",
    "é\n\r\t☃😀",
    "LLM('up', title)",
    "_rq_llm_0(",
    "{title}",
    "%s {} \\",
    "x" * 100_000,
]
VALUES: list[Any] = [
    None, True, False, 0, -3, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**63, 2**127, 1.5, -0.0,
    1e300, 5e-324, 0.1, math.inf, math.nan, Decimal("1.10"), Decimal("-0.005"), Decimal("7"),
    Decimal("1E+3"), Decimal("12345678901234567890.123456789"),
    Decimal("1234567890123456789012345678901234567.8"), "", "it's", b"\x00'a",
    dt.date(2024, 2, 29), dt.time(1, 2, 3, 4), dt.datetime(2024, 2, 29, 1, 2, 3, 4),
    dt.datetime(2024, 2, 29, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, tzinfo=dt.timezone(
        dt.timedelta(hours=5, minutes=30))), dt.timedelta(days=1, seconds=3), uuid.UUID(int=2**100),
    [1, None, 3], ["a", "it's"], [], [["a"], []], {"a": 1, "b": {"c": [Decimal("1.0")]}},
    {"key": ["x"], "value": [1]}, (1, 2),
]  # fmt: skip
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
        if type(value) in (bool, int, str, bytes, Decimal, dt.date, dt.datetime):
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


PLACES: list[tuple[str, Any, list[tuple[Any, ...]]]] = [
    ("SELECT LLM('up', title) FROM films ORDER BY id LIMIT ? OFFSET ?", [1, 5], [("DUNE",)]),
    ("SELECT LLM(?, title) FROM films WHERE id = ?", ["up", 6], [("DUNE",)]),
    ("SELECT LLM($2, title) FROM films WHERE id = $1", [6, "up"], [("DUNE",)]),
    ("SELECT LLM('up', title, labels := $of) FROM films WHERE id = $ID",
     {"of": ["DUNE", "OTHER"], "id": 6}, [("DUNE",)]),
    ("SELECT LLM('up', title, max_tokens := $n, temperature := $t) FROM films WHERE id = 6",
     {"n": 9, "t": 0.0}, [("DUNE",)]),
    ("SELECT id FROM films WHERE LLM('up', title) = $name", {"name": "DUNE"}, [(6,)]),
    ("SELECT id FROM films WHERE LLM('len', title) < $n", {"n": 5}, [(5,), (6,)]),
    ("SELECT LLM('up', title) FROM films WHERE info.year > $y::DATE.year()",
     {"y": "2020-01-01"}, [("DUNE",)]),
    ("SELECT LLM('up', coalesce(title, $d)) FROM films WHERE id = 5", {"d": "x"}, [("X",)]),
    ("SELECT LLM('up', title, $no) FROM films WHERE id = 6", {"no": None}, [("NULL|DUNE",)]),
    ("WITH x AS (SELECT LLM('up', title) AS u, id + ? AS i FROM films) SELECT u FROM x "
     "WHERE i = ?", [1, 7], [("DUNE",)]),
    ("CREATE TABLE t AS SELECT id, LLM('up', title) AS u FROM films WHERE id > ?; "
     "INSERT INTO t VALUES (?, ?); SELECT u FROM t WHERE id > ? ORDER BY id",
     [5, 7, "seven", 5], [("DUNE",), ("seven",)]),
    ("PREPARE p AS SELECT LLM('up', ?); EXECUTE p($a || 'b')", {"a": "a"}, [("AB",)]),
    ("CREATE MACRO ask(x, q) AS LLM(q, x); SELECT ask($x, $q)", {"x": "a", "q": "up"},
     [("A",)]),
]  # fmt: skip


@pytest.mark.parametrize("at", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_parameter_may_stand_where_a_value_may(at: int, con: Connection) -> None:
    for query, params, rows in PLACES[at::2]:
        assert sorted(con.sql(query, params).fetchall()) == rows, query
    con.sql("PREPARE q AS SELECT LLM('up', title) FROM films WHERE id = $1")
    assert con.sql("EXECUTE q(?)", [6]).fetchall() == [("DUNE",)]


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


def test_a_field_has_its_name_or_its_parameters(con: Connection, backend: FakeBackend) -> None:
    query = "SELECT LLM('up', $topic, title), LLM('up', $topic AS f, title) FROM films WHERE id = 6"
    con.sql(query, {"topic": "war"})
    con.sql("SELECT LLM('up', ? AS f, title) FROM films WHERE id = 6", ["peace"])
    assert [asked.fields for asked in backend.asked] == [
        {"topic": "war", "title": "Dune"},
        {"f": "war", "title": "Dune"},
        {"f": "peace", "title": "Dune"},
    ]


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


def test_a_filter_by_parameter_ends_early(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT id FROM films WHERE LLM('up', title) = $t", {"t": "DUNE"})
    assert {request.sampling for request in backend.asked} == {Compared(texts=("DUNE",))}


def test_explain_takes_parameters(con: Connection, backend: FakeBackend) -> None:
    query = "SELECT LLM($q, title) FROM films WHERE id < $n"
    explained = con.explain(query, {"q": "up", "n": 3})
    assert [(call.prompt, call.rows) for call in explained.calls] == [("up", 2)]
    assert "films" in str(con.explain("SELECT id FROM films WHERE id = $n", {"n": 1}))
    assert con.sql(f"EXPLAIN {query}", {"q": "up", "n": 3}).table["rows"].to_pylist() == [2]
    assert backend.asked == []


def test_wrong_parameters_are_refused_at_once(con: Connection, backend: FakeBackend) -> None:
    cases: list[tuple[str, Any, str]] = [
        ("SELECT LLM('up', $a)", None, r"needs a value for \$a"),
        ("SELECT LLM('up', ?)", [], r"no value for \$1.*none"),
        ("SELECT LLM('up', $a)", {"b": 1}, r"no value for \$a. It has \$b"),
        ("SELECT LLM('up', $a)", {"a": 1, "b": 1}, r"value for \$b, which"),
        ("SELECT LLM('up', $1, $3)", [1, 2, 3], r"value for \$2, which"),
        ("SELECT LLM('up', $1, $3)", [1, 2], r"no value for \$3"),
        ("SELECT LLM('up', ?)", {"a": 1}, "must be a list"),
        ("SELECT LLM('up', $a)", [1], "must be a dict"),
        ("SELECT LLM('up', $a)", "x", "must be a list"),
        ("SELECT LLM('up', 'x')", [1], r"value for \$1, which"),
        ("SELECT LLM('up', 'x'); SELECT ?, ?", [1], r"no value for \$2"),
        ("SELECT LLM('up', $a)", {"a": "\ud800"}, "lone surrogate"),
        ("SELECT LLM('up', 'x'); SELECT $a", {"a": 2**200}, "DuckDB cannot take"),
        ("SELECT LLM('up', 'x'); SELECT $a", {"a": object()}, "DuckDB cannot take"),
        ("SELECT LLM('up', 'x'); SELECT $a", {"a": dict}, "DuckDB cannot take"),
        ("SELECT LLM('up', 'x'), $a", {"a": dict}, "DuckDB cannot take"),
        ("SELECT LLM('up', 'x', $a)", {"a": dict}, "DuckDB cannot take"),
        ("CREATE VIEW v AS SELECT LLM('up', $a)", {"a": 1}, "cannot have parameters"),
        ("CREATE MACRO m(x) AS LLM($a, x)", {"a": "up"}, "cannot have parameters"),
        ("SELECT LLM('up', 'x', max_tokens := $n)", {"n": "many"}, "max_tokens"),
    ]
    for query, params, said in cases:
        with pytest.raises(QueryError, match=said):
            con.sql(f"CREATE TABLE made AS SELECT 1; {query}", params)
        assert backend.asked == [], query
        assert "made" not in con.tables() or "max_tokens" in query


def test_a_schema_may_be_a_parameter(con: Connection, backend: FakeBackend) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    with pytest.warns(Warning, match="not JSON"):
        con.sql("SELECT AI_EXTRACT(title, $schema) FROM films WHERE id = 1", {"schema": schema})
    assert '"a"' in str(backend.asked[0].sampling)


def test_no_variable_is_left_in_duckdb(con: Connection) -> None:
    con.sql("SELECT LLM('up', 'a'), $v", {"v": [1, None]})
    with pytest.raises(QueryError):
        con.sql("SELECT LLM('up', nosuch), $v", {"v": [1, None]})
    assert con.sql("SELECT count(*) FROM duckdb_variables()").fetchall() == [(0,)]
