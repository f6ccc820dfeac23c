"""Answers that are a column of a subquery are read as in the SELECT with their call."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.errors import LateQueryError, QueryError, RequestError
from tests.sql.answers.test_conversions import A, con, quietly, run  # noqa: F401
from tests.sql.fakes import FakeBackend

D = date(2024, 1, 3)
INNER = f"SELECT id, k, d AS day, {A} AS a FROM t"
W = f"WITH z AS ({INNER})"
QUERIES: list[tuple[str, list[Any], list[int]]] = [
    (f"SELECT a::DATE FROM ({INNER}) ORDER BY id", [(None,), (None,), (D,), (None,)], [1, 2, 4]),
    (f"{W} SELECT a::INT FROM z ORDER BY id", [(7,), (None,), (None,), (None,)], [2, 3, 4]),
    (f"{W} SELECT z.a::INT FROM z, t WHERE t.id = z.id ORDER BY z.id",
     [(7,), (None,), (None,), (None,)], [2, 3, 4]),
    (f"{W} SELECT sum(a::INT), count(*) FROM z", [(7, 4)], [2, 3, 4]),
    (f"{W} SELECT id FROM z WHERE a::DATE = day", [(3,)], [1, 2, 4]),
    (f"{W} SELECT id FROM z WHERE a = day", [(3,)], [1, 2, 4]),
    (f"{W} SELECT id FROM z WHERE id < 3 AND a::INT = 7", [(1,)], [2]),
    (f"{W} SELECT a::INT FROM z WHERE a <> 'abc' AND id < 3", [(7,)], []),
    (f"{W} SELECT id, a ->> '$.k[0]' FROM z WHERE id > 2 ORDER BY id", [(3, None), (4, "7")], [1]),
    (f"{W} SELECT k, max(a::DATE) FROM z GROUP BY k ORDER BY k", [("x", None), ("y", D)],
     [1, 2, 4]),
    (f"{W} SELECT CASE WHEN id > 3 THEN a::JSON END FROM z ORDER BY id DESC LIMIT 1",
     [('{"k": [7]}',)], []),
    (f"{W} SELECT CASE WHEN id = 2 THEN a::JSON END FROM z ORDER BY id LIMIT 1", [(None,)], []),
    (f"{W} SELECT CASE WHEN id = 2 THEN a::JSON END FROM z ORDER BY id LIMIT 2",
     [(None,), (None,)], [2]),
    (f"{W}, y AS (SELECT id, upper(a) AS b FROM z WHERE id < 3) SELECT b::INT FROM y ORDER BY id",
     [(7,), (None,)], [2]),
    (f"{W}, y AS (SELECT * EXCLUDE (k) FROM z) SELECT y.a::INT FROM y WHERE id < 3 ORDER BY id",
     [(7,), (None,)], [2]),
    (f"{W}, y AS (SELECT a::INT AS n FROM z) SELECT max(n) + 1 FROM y", [(8,)], [2, 3, 4]),
    (f"WITH z(i, b) AS (SELECT id, {A} FROM t) SELECT b::INT FROM z WHERE i < 3 ORDER BY i",
     [(7,), (None,)], [2]),
    (f"SELECT b::INT FROM (SELECT id, {A} FROM t) AS z(i, b) WHERE i < 3 ORDER BY i",
     [(7,), (None,)], [2]),
    (f"SELECT u.a::INT FROM ({INNER} WHERE id = 1 UNION ALL {INNER} WHERE id = 2) u ORDER BY 1",
     [(7,), (None,)], [2]),
    (f"{W} SELECT id FROM z WHERE id IN (SELECT a::INT - 6 FROM z)", [(1,)], [2, 3, 4]),
    (f"{W} SELECT (SELECT max(a::INT) FROM z), count(*) FROM z", [(7, 4)], [2, 3, 4]),
    (f"{W} SELECT TRY_CAST(a AS INT), a FROM z WHERE id < 3 ORDER BY id",
     [(7, "7"), (None, "abc")], []),
    (f"{W} FROM (PIVOT (SELECT id, k, a FROM z WHERE id IN (1, 3)) ON k USING max(a::VARCHAR)) "
     "SELECT x, y ORDER BY id", [("7", None), (None, "2024-01-03")], []),
    (f"{W} SELECT a::DATE FROM z TABLESAMPLE 100% WHERE id = 3", [(D,)], []),
    (f"{W} SELECT t.id, (SELECT max(z.a::INT) FROM z WHERE z.id = t.id) FROM t WHERE id = 1",
     [(1, 7)], []),
    (f"{W} SELECT list_transform([1], lambda a: a::INT + 1)[1] FROM z WHERE id = 2", [(2,)], []),
]  # fmt: skip


@pytest.mark.parametrize("queries", [QUERIES[::2], pytest.param(QUERIES, marks=pytest.mark.long)])
def test_what_is_no_value_is_null_with_a_row_error(
    queries: list[tuple[str, list[Any], list[int]]],
    con: Connection,  # noqa: F811
) -> None:
    for query, rows, failed in queries:
        assert run(con, query) == (rows, failed), query


def test_the_row_error_says_what_was_read_where(con: Connection) -> None:  # noqa: F811
    result = quietly(con, f"{W} SELECT a::DATE, upper(a)::INT FROM z WHERE id = 2")
    first, second = result.errors
    assert first.error.startswith("The answer is 'abc'; the query needs a value of type DATE here")
    assert second.error.startswith("UPPER(a) is 'ABC'; the query needs a number (INTEGER) here")
    assert (first.stage, first.row, first.text, dict(first.inputs)) == ("outer query", 0, "abc", {})


def test_on_error_raise_stops_before_the_rows_are_computed(con: Connection) -> None:  # noqa: F811
    with pytest.raises(RequestError, match="outer query: The answer is 'abc'"):
        con.sql(f"{W} SELECT a::DATE FROM z WHERE id = 2", on_error="raise")


def test_columns_that_are_no_answers_fail_as_ever(con: Connection) -> None:  # noqa: F811
    with pytest.raises(QueryError, match="'x'"):
        con.sql(f"{W} SELECT k::INT FROM z")
    with pytest.raises(QueryError, match="'x'"):
        con.sql(f"SELECT (k || a)::INT, y.k::INT FROM ({INNER}) z JOIN t y USING (id, k)")


INSERTS: list[tuple[str, list[Any], list[int] | None]] = [
    (f"INSERT INTO o SELECT a, id FROM ({INNER}) ORDER BY a LIMIT 2", [(D, 3), (None, 1)], [2]),
    (f"{W} INSERT INTO o SELECT a, id FROM z WHERE id > 1", [(D, 3), (None, 2), (None, 4)],
     [1, 3]),
    (f"{W} INSERT INTO o BY NAME SELECT a AS d FROM z WHERE id > 2", [(D, None), (None, None)],
     [2]),
    (f"INSERT INTO o(n) SELECT DISTINCT a FROM ({INNER}) WHERE id < 3", [(None, 7),
     (None, None)], None),
    (f"INSERT INTO o SELECT max({A}), 1 FROM t", [(None, 1)], [1]),
    (f"INSERT INTO o SELECT {A}, 1 FROM t WHERE id = 3 UNION SELECT {A}, 1 FROM t WHERE id = 2",
     [(D, 1), (None, 1)], None),
    (f"INSERT INTO o SELECT d, n FROM (SELECT d, n, {A} AS a FROM t) WHERE a = '7'",
     [(date(2024, 1, 1), 7)], []),
]  # fmt: skip


@pytest.mark.parametrize("inserts", [INSERTS[::2], pytest.param(INSERTS, marks=pytest.mark.long)])
def test_an_insert_of_such_a_column_is_cast_likewise(
    inserts: list[tuple[str, list[Any], list[int] | None]],
    con: Connection,  # noqa: F811
) -> None:
    for statement, rows, failed in inserts:
        con.sql("CREATE OR REPLACE TABLE o(d DATE, n TINYINT)")
        written, found = run(con, statement)
        assert written == [(len(rows),)], statement
        assert con.sql("FROM o ORDER BY ALL").fetchall() == rows, statement
        assert len(found) == 1 if failed is None else found == failed, statement


def test_what_joins_on_a_cast_still_ends_the_query(con: Connection) -> None:  # noqa: F811
    with pytest.raises(LateQueryError, match="abc"):
        con.sql(f"{W} SELECT z.id FROM z JOIN t ON z.a::INT = t.n WHERE z.id = 2")


def test_items_that_are_several_columns_are_read() -> None:
    """`unnest` of structs gives a column per field."""
    with connect(FakeBackend(lambda query, fields: "UP")) as connection:
        for items, expected in (
            ("unnest([{'a': 1, 'b': x}], recursive := true), x", (1, "UP", "UP")),
            ("x AS y, unnest([{'a': x, 'b': 1}], recursive := true)", ("UP", "UP", 1)),
            ("unnest({'a': x, 'b': {'c': 2}}, recursive := true), 3 AS d", ("UP", 2, 3)),
        ):
            entry = f"WITH a AS (SELECT LLM('up', 1) AS x), b AS (SELECT {items} FROM a)"
            assert connection.sql(f"{entry} SELECT * FROM b").fetchall() == [expected]
