"""UPDATE and DELETE with calls change what DuckDB changes with the model as SQL."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from relquery.errors import QueryError, UnknownColumnError, UnsupportedQueryError
from relquery.prompt import Answer, Finish
from tests.sql.conftest import MACROS, asked_of, opened, reference_sql, upper_or_length
from tests.sql.fakes import FakeBackend, Fields

_TABLES = """
CREATE TABLE t (id INTEGER, a VARCHAR, n DOUBLE, s VARCHAR DEFAULT 'd');
INSERT INTO t VALUES (1, 'ab', 10, 'x'), (2, 'abc', 20, 'y'), (3, 'abcd', 30, 'z'),
    (4, NULL, 40, 'w');
CREATE TABLE u (id INTEGER, b VARCHAR);
INSERT INTO u VALUES (1, 'one'), (2, 'two'), (5, 'five'), (6, 'sixx');
"""
_CASES = (Path(__file__).parent / "changes.sql").read_text().splitlines()


@pytest.mark.parametrize("case", _CASES)
def test_a_change_is_that_of_duckdb(case: str) -> None:
    statement, _, calls = (part.strip() for part in case.rpartition("#"))
    con, plain = opened(setup=_TABLES), duckdb.connect()
    plain.execute(_TABLES + MACROS)
    asked = asked_of(con)
    given = con.sql(statement).fetchall()
    assert sorted(map(repr, given)) == sorted(
        map(repr, plain.execute(reference_sql(statement)).fetchall())
    )
    assert len(asked) == int(calls)
    everything = "FROM t ORDER BY ALL"
    assert con.sql(everything).fetchall() == plain.execute(everything).fetchall()


def test_parameters_keep_their_places() -> None:
    con = opened(setup=_TABLES)
    con.sql("UPDATE t SET a = LLM(?, a), n = ? WHERE id = ?", ["up", 7, 1])
    con.sql(
        "UPDATE t SET a = LLM(?, u.b) FROM u WHERE t.id = u.id AND u.id > ? AND LLM(?, u.b) = ?",
        ["up", 1, "yes", "No"],
    )
    found = con.sql("SELECT a, n FROM t WHERE id < 3 ORDER BY id").fetchall()
    assert found == [("AB", 7.0), ("TWO", 20.0)]


def test_parameters_of_a_with_clause_are_those_of_the_whole_statement() -> None:
    con = opened(setup=_TABLES)
    entry = "WITH e AS (SELECT id, LLM('up', b) AS z FROM u WHERE id = ?)"
    con.sql(f"{entry} UPDATE t SET a = e.z || ? FROM e WHERE e.id = t.id", [1, "!"])
    con.sql(f"{entry} INSERT INTO t (id, a) SELECT id, z || ? FROM e", [5, "?"])
    found = con.sql("SELECT id, a FROM t WHERE id IN (1, 5) ORDER BY id").fetchall()
    assert found == [(1, "ONE!"), (5, "FIVE?")]


def test_rows_that_cannot_be_told_apart_are_left_alone() -> None:
    con = opened(
        setup=_TABLES + "CREATE TABLE r (rowid INTEGER, a VARCHAR); CREATE VIEW v AS FROM t"
    )
    with pytest.raises(UnsupportedQueryError, match="r has a column rowid"):
        con.sql("UPDATE r SET a = LLM('up', a)")
    with pytest.raises(QueryError, match="v is a view"):
        con.sql("DELETE FROM v WHERE LLM('yes', a) = 'Yes'")


def test_a_wrong_change_says_why_within_a_transaction() -> None:
    con = opened(setup=_TABLES)
    con.sql("BEGIN")
    with pytest.raises(QueryError, match="Multiple assignments to same column"):
        con.sql("UPDATE t SET a = LLM('up', a), a = 'x'")
    con.sql("ROLLBACK")


def test_nothing_changes_where_something_is_wrong() -> None:
    con = opened(setup=_TABLES)
    asked, before = asked_of(con), con.sql("FROM t").fetchall()
    with pytest.raises(UnknownColumnError, match="Column 'nix' is not in table t"):
        con.sql("UPDATE t SET a = LLM('up', a), s = nix")
    with pytest.raises(UnknownColumnError, match=r"in tables t, u. Columns: id, a, n, s, b\."):
        con.sql("UPDATE t SET a = LLM('x', z) FROM u WHERE t.id = u.id")
    with pytest.raises(UnsupportedQueryError, match="each column by itself"):
        con.sql("UPDATE t SET (a, s) = (SELECT LLM('up', 'x'), 'y')")
    assert not asked
    assert con.sql("FROM t").fetchall() == before


def test_a_change_is_interrupted_before_it_begins() -> None:
    def stops(query: str, fields: Fields) -> str | Answer:
        if fields["a"] == "abcd":
            raise KeyboardInterrupt
        return upper_or_length(query, fields)

    con = opened(FakeBackend(stops), _TABLES)
    before = con.sql("FROM t").fetchall()
    for statement in ("UPDATE t SET a = LLM('up', a)", "DELETE FROM t WHERE LLM('yes', a) = 'Yes'"):
        with pytest.raises(KeyboardInterrupt):
            con.sql(statement)
        assert con.sql("FROM t").fetchall() == before


def test_an_answer_that_is_no_value_is_null_in_the_table() -> None:
    con = opened(FakeBackend(lambda query, fields: Answer("ten", Finish.STOP)), _TABLES)
    with pytest.warns(match="needs a number"):
        con.sql("UPDATE t SET n = LLM('How many?', a) WHERE id = 1")
    assert con.sql("SELECT n FROM t WHERE id = 1").fetchall() == [(None,)]
