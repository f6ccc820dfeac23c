"""A call in a statement changes nothing of what the rest means: it is DuckDB that reads it."""

from __future__ import annotations

import duckdb
import pytest

from relquery.connection import Connection
from tests.cases import cases
from tests.sql.conftest import opened

TABLE = """CREATE TABLE t AS SELECT 1 AS i, 2 AS a, 'month' AS s, DATE '2026-01-10' AS d,
    [3, 4] AS l, '{"user.name": "x", "b": [1]}'::JSON AS j"""


@pytest.fixture(scope="module")
def asking() -> Connection:
    return opened(setup=TABLE)


@pytest.mark.parametrize("part", [part for (part,) in cases(__file__, "parts")])
def test_a_part_beside_a_call_is_what_duckdb_says(part: str, asking: Connection) -> None:
    with duckdb.connect() as plain:
        plain.execute(TABLE)
        expected = plain.execute(f"SELECT {part} FROM t")
        names, rows = [one[0] for one in expected.description], expected.fetchall()
    for query in (
        f"SELECT {part}, LLM('up', i) FROM t",
        f"WITH z AS (SELECT {part}, LLM('up', i) FROM t) SELECT * FROM z",
        f"SELECT {part}, u FROM (SELECT *, LLM('up', i) AS u FROM t)",
    ):
        if part == "#1" and query.startswith("SELECT #1, u"):
            continue
        result = asking.sql(query)
        (got,) = result.fetchall()
        assert got[-1] == "1"
        # DuckDB numbers equal names of an inner query.
        assert query.startswith("WITH") or list(result.columns)[:-1] == names
        assert "now()" in part or [got[:-1]] == rows


def test_conditions_beside_a_call_are_what_duckdb_says(asking: Connection) -> None:
    for condition in ("j->>'user.name' = 'x'", "s ~ 'mon.*'", "l[:1] = [3]", "#1 = 1"):
        assert asking.sql(f"SELECT LLM('up', i) FROM t WHERE {condition}").fetchall() == [("1",)]


NESTED = [
    "(SELECT i, {} FROM n ORDER BY i LIMIT 2) ORDER BY i DESC LIMIT 1",
    "(SELECT DISTINCT i, {} FROM n ORDER BY i LIMIT 3) LIMIT 2",
    "((SELECT i, {} FROM n ORDER BY i LIMIT 3) ORDER BY i DESC LIMIT 2) ORDER BY i",
    "((SELECT i, {} FROM n) UNION ALL (SELECT 4, 'x') ORDER BY 1 LIMIT 3) ORDER BY 1 DESC",
    "SELECT * FROM ((SELECT i, {} FROM n ORDER BY i LIMIT 2) ORDER BY i DESC LIMIT 1)",
    "WITH z AS (SELECT i, {} AS u FROM n) (SELECT * FROM z ORDER BY i LIMIT 2) LIMIT 1",
]


@pytest.mark.parametrize("query", NESTED)
def test_what_follows_a_parenthesis_is_about_what_is_in_it(query: str) -> None:
    setup = "CREATE TABLE n AS SELECT range AS i FROM range(1, 4)"
    with duckdb.connect() as plain:
        plain.execute(setup)
        expected = plain.execute(query.format("i::VARCHAR")).fetchall()
    assert opened(setup=setup).sql(query.format("LLM('up', i)")).fetchall() == expected


def test_a_setting_for_nulls_does_not_change_what_is_written() -> None:
    con = opened(setup="CREATE TABLE n AS SELECT * FROM (VALUES (NULL), (1), (2)) v(i)")
    con.sql("SET default_null_order = 'nulls_first'")
    for order, first in (("i NULLS LAST", 1), ("i", None), ("i DESC NULLS LAST", 2)):
        got = con.sql(f"SELECT i, LLM('up', 'x') FROM n ORDER BY {order} LIMIT 1").fetchall()
        assert got == [(first, "X")]
