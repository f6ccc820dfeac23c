"""Queries whose shape makes a call's rows hard to see: outer joins, groups, macros, names."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from relquery.connection import Connection
from relquery.errors import QueryError, UnsupportedQueryError
from tests.sql.conftest import reference_sql
from tests.sql.fakes import FakeBackend
from tests.sql.same import both, check, queries

Sides = tuple[Connection, duckdb.DuckDBPyConnection]

MORE = """
CREATE MACRO cnt(x) AS count(x);
CREATE MACRO total(x) AS cnt(x) + sum(0);
CREATE MACRO newest(x) AS row_number() OVER (ORDER BY x DESC);
CREATE MACRO each(x) AS unnest(x);
CREATE MACRO half(x) AS x / 2, (x, y) AS (x + y) / 2;
CREATE MACRO loud(text) AS upper(text) || '!';
CREATE MACRO peek(x) AS (SELECT max(r.text) FROM reviews r WHERE r.film = x);
CREATE MACRO peeked(x) AS length(peek(x));
"""
ASKING = (
    "CREATE MACRO up(x) AS LLM('up', x)",
    "CREATE MACRO twice_up(y) AS up(y) || up(y)",
    "CREATE MACRO added(x) AS list_transform([9], lambda id: id + x)[1]::VARCHAR || LLM('up', x)",
)

KINDS = ("RIGHT", "FULL", "LEFT", "INNER")
TWO_JOINS = [
    f"SELECT f.*, r.*, g.* FROM films f {first} JOIN reviews r ON f.id = r.film AND LLM('yes', "
    f"r.text) = 'No' {second} JOIN films g ON g.id = film AND LLM('len', text, g.title) <> '3'"
    for first in KINDS
    for second in KINDS
]
# DuckDB 2.0.1 fails on some of these if they are written as they come; see rewrite.pairs.
LAST_JOINS = [
    f"SELECT f.id FROM films f {first} JOIN reviews r ON {plain}LLM('yes', {about}) = 'No' "
    f"{last} JOIN films g ON LLM('len', f.title) <> '{wanted}'"
    for first in KINDS
    for last in ("SEMI", "ANTI")
    for plain in ("", "f.id = r.film AND ")
    for about in ("r.text", "f.title")
    for wanted in ("3", "4")
]


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with both(MORE, order="original") as (con, plain):
        for macro in ASKING:
            con.sql(macro)
            plain.execute(reference_sql(macro))
        yield con, plain


def test_rows_are_those_that_duckdb_gives(sides: Sides) -> None:
    check(queries("shapes.sql", is_long=False), *sides, ordered=False)
    check([TWO_JOINS[at] for at in (1, 4, 11, 14)], *sides, ordered=False)
    check([LAST_JOINS[at] for at in (1, 14, 23, 26)], *sides, ordered=False)


@pytest.mark.long
@pytest.mark.parametrize("wanted", [queries("shapes.sql", is_long=True), TWO_JOINS, LAST_JOINS])
def test_rows_of_every_combination_are_those_that_duckdb_gives(
    wanted: list[str], sides: Sides
) -> None:
    check(wanted, *sides, ordered=False)


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
def test_what_must_fail_fails_before_the_first_call(
    is_long: bool, con: Connection, backend: FakeBackend
) -> None:
    con.sql("CREATE TABLE strict (id INTEGER PRIMARY KEY, text VARCHAR, n INTEGER CHECK (n > 3))")
    con.sql("INSERT INTO strict VALUES (6, 'six', 6)")
    for query in queries("prevented.sql", is_long=is_long, under="what must fail"):
        with pytest.raises(QueryError) as caught:
            con.sql(query)
        assert not backend.asked, query
        assert "_rq_" not in str(caught.value)
        assert "CASE  WHEN" not in str(caught.value)


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
def test_what_an_answer_may_prevent_does_not_fail_beforehand(
    is_long: bool, con: Connection
) -> None:
    for query in queries("prevented.sql", is_long=is_long, under="what an answer may"):
        con.sql(query)


def test_what_is_not_supported_names_a_way(con: Connection, backend: FakeBackend) -> None:
    con.database.execute("CREATE MACRO part(a, b := 1) AS count(a) + b")
    for query, said in (
        ("SELECT f.id FROM films f LEFT JOIN (SELECT text, random() AS x FROM reviews) r "
         "ON LLM('up', r.text) = 'A'", "LEFT join"),
        ("SELECT part(title), LLM('up', title) FROM films", "leaves out arguments"),
        ("SELECT DISTINCT i FROM (SELECT id, unnest(tags) AS i FROM films) a LEFT JOIN reviews r "
         "ON a.id = r.film AND LLM('up', r.text) = 'A' WHERE i > 'a'", "to a table first"),
        ("SELECT LLM('up', title ORDER BY id) FROM films", "does not take ORDER BY"),
        ("SELECT LLM('up', id) AS a, (SELECT count(*) FROM reviews WHERE text = a) FROM films",
         "Write the expression instead"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedQueryError, match=said):
            con.sql(query)
    assert not backend.asked
