"""Queries whose shape makes a call's rows hard to see: outer joins, groups, macros, names."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from relquery.connection import Connection
from relquery.errors import QueryError, UnsupportedQueryError
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
SHADOWS = [
    f"SELECT {items} FROM films WHERE LLM('yes', title) = '{answer}' {rest}"
    for answer in ("Yes", "No")
    for items, rest in [
        ("-id AS id, row_number() OVER (ORDER BY id)", ""),
        ("-id AS id, row_number() OVER (ORDER BY id) + id", "ORDER BY id"),
        ("-id AS id, sum(id) OVER (PARTITION BY genre ORDER BY id)", ""),
        ("7 AS id, array_agg(title ORDER BY id DESC)", ""),
        ("max(-id) AS id, list(title ORDER BY id)", ""),
        ("7 AS id, first(title ORDER BY id DESC), arg_max(title, id)", ""),
        ("7 AS id, rank() OVER w", "WINDOW w AS (ORDER BY id)"),
        ("7 AS id, title", "QUALIFY row_number() OVER (PARTITION BY genre ORDER BY id DESC) = 1"),
        ("7 AS id, title", "ORDER BY row_number() OVER (ORDER BY id DESC)"),
        ("count(*) AS id, string_agg(title, ',' ORDER BY id, title)", "GROUP BY genre"),
        ("mode() WITHIN GROUP (ORDER BY -id) AS id, mode() WITHIN GROUP (ORDER BY id)", ""),
        ("max(LLM('up', id)) OVER (PARTITION BY genre ORDER BY id), id", ""),
        ("genre, count(*) AS id", "GROUP BY ALL HAVING id > 1"),
        ("genre, count(*) AS id", "GROUP BY genre HAVING id > 1 AND max(id) < 5"),
        ("LLM('up', genre) AS genre, count(*)", "GROUP BY ALL HAVING genre <> 'COMEDY'"),
        ("upper(genre) AS genre, max(LLM('up', id))", "GROUP BY ALL HAVING genre <> 'COMEDY'"),
        ("upper(genre) AS genre, max(LLM('up', id))", "GROUP BY genre HAVING genre <> 'comedy'"),
        ("7 AS id, max(LLM('up', id))", "GROUP BY films.id HAVING id < 5"),
        ("7 AS seen, films.seen AS x, max(id)", "GROUP BY 2 HAVING seen"),
        ("LLM('up', genre) AS id, id + 1 AS x, LLM('up', count(*))",
         "GROUP BY 1, 2 HAVING id <> 'COMEDY' ORDER BY id, x"),
        ("-id AS id, LLM('up', count(*))", "GROUP BY id ORDER BY id"),
        ("LLM('up', min(genre)) AS id, max(films.id)", "GROUP BY films.id ORDER BY id, 2"),
        ("LLM('up', id) AS genre, films.genre", "ORDER BY genre DESC"),
        ("films.genre, LLM('up', id) AS genre", "ORDER BY genre DESC"),
        ("-id AS seen, id AS seen, films.seen", "ORDER BY seen"),
    ]
]  # fmt: skip
"""A name of the select list that is a column, too.

Windows, aggregates and keys read the column; ORDER BY and the rest of HAVING the select list.
"""


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with both(MORE, order="original") as connections:
        yield connections


def test_rows_are_those_that_duckdb_gives(sides: Sides) -> None:
    check(queries("shapes.sql", is_long=False), *sides, ordered=False)
    check([TWO_JOINS[at] for at in (1, 4, 11, 14)], *sides, ordered=False)
    check([LAST_JOINS[at] for at in (1, 14, 23, 26)], *sides, ordered=False)
    check(SHADOWS[len(SHADOWS) // 2 + 2 :: 3], *sides, ordered=False)


@pytest.mark.long
@pytest.mark.parametrize(
    "wanted", [queries("shapes.sql", is_long=True), TWO_JOINS, LAST_JOINS, SHADOWS]
)
def test_rows_of_every_combination_are_those_that_duckdb_gives(
    wanted: list[str], sides: Sides
) -> None:
    check(wanted, *sides, ordered=False)


def test_rows_that_no_branch_reads_are_not_asked(con: Connection, backend: FakeBackend) -> None:
    con.sql(
        "SELECT CASE WHEN s = '12' THEN LLM('up', CAST(s AS INT)) END "
        "FROM (VALUES ('12'), ('a')) v(s)"
    )
    assert [asked.fields for asked in backend.asked] == [{"s": 12}]


def test_a_field_that_is_a_query_with_a_call_is_named_by_what_it_computes(
    con: Connection, backend: FakeBackend
) -> None:
    query = "SELECT LLM('up', (SELECT max(LLM('up', text)) FROM reviews)) FROM films LIMIT 1"
    written = "max_llm"
    assert con.explain(query).calls[-1].fields == written
    con.sql(query)
    assert backend.asked[-1].fields == {written: "SWEET"}


def test_a_condition_by_chance_guards_no_call(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT CASE WHEN random() < 0.5 THEN LLM('up', id) ELSE 'x' END FROM films")
    assert len(backend.asked) == 6


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


def test_rows_that_a_table_takes_are_inserted(con: Connection) -> None:
    con.sql("CREATE TABLE strict (id INTEGER PRIMARY KEY, text VARCHAR, n INTEGER CHECK (n > 3))")
    con.sql("INSERT INTO strict SELECT id, LLM('up', title), id + 3 FROM films")
    con.sql("INSERT OR IGNORE INTO strict SELECT id, LLM('up', title), 5 FROM films WHERE id < 3")
    assert con.sql("SELECT count(*), min(text) FROM strict").fetchall() == [(6, "ALIEN")]


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
def test_what_an_answer_may_prevent_does_not_fail_beforehand(
    is_long: bool, con: Connection
) -> None:
    for query in queries("prevented.sql", is_long=is_long, under="what an answer may"):
        con.sql(query)


def test_what_is_not_supported_names_a_way(con: Connection, backend: FakeBackend) -> None:
    con.database.execute(
        "CREATE MACRO nvl(a, b) AS b; CREATE MACRO part(a, b := 1) AS count(a) + b"
    )
    for query, said in (
        ("SELECT f.id FROM films f LEFT JOIN (SELECT text, random() AS x FROM reviews) r "
         "ON LLM('up', r.text) = 'A'", "LEFT join"),
        ("SELECT nvl(title, 'x'), LLM('up', title) FROM films", "macro nvl"),
        ("SELECT part(title), LLM('up', title) FROM films", "leaves out arguments"),
        ("SELECT LLM('up', title ORDER BY id) FROM films", "does not take ORDER BY"),
        ("SELECT LLM('up', id) AS a, (SELECT count(*) FROM reviews WHERE text = a) FROM films",
         "Write the expression instead"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedQueryError, match=said):
            con.sql(query)
    assert not backend.asked


def test_a_with_clause_may_stand_before_insert(con: Connection) -> None:
    con.sql("WITH z AS (SELECT id, LLM('up', title) AS u FROM films) INSERT INTO reviews "
            "SELECT id, id, u FROM z WHERE u = 'DUNE'")  # fmt: skip
    con.sql("WITH z AS (SELECT 7 AS i) INSERT INTO reviews "
            "WITH y AS (SELECT i FROM z) SELECT i, i, LLM('up', i) FROM y")  # fmt: skip
    rows = con.sql("SELECT text FROM reviews WHERE text = 'DUNE' OR id = 7 ORDER BY id")
    assert rows.fetchall() == [("DUNE",), ("7",)]
