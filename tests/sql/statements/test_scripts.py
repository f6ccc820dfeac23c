"""Several statements in one query: in order, each checked as early as possible."""

from __future__ import annotations

import pytest

from relquery.connection import Connection
from relquery.errors import (
    LateQueryError,
    PartialResultWarning,
    QueryError,
    UnknownColumnError,
    UnsupportedQueryError,
)
from tests.sql.fakes import FakeBackend


def test_statements_run_in_order_and_the_last_gives_the_rows(con: Connection) -> None:
    result = con.sql(
        "CREATE TABLE loud AS SELECT id, LLM('up', title) AS t FROM films;"
        "DELETE FROM loud WHERE id > 2;\n"
        "SELECT id, LLM('len', t) + 0 AS n FROM loud ORDER BY id; -- the end"
    )
    assert result.columns == ["id", "n"]
    assert result.fetchall() == [(1, 5.0), (2, 6.0)]


def test_the_report_says_which_statement_asked(con: Connection, backend: FakeBackend) -> None:
    report = con.sql(
        "SELECT LLM('up', title) FROM films; SELECT 1; SELECT LLM('yes', title) FROM films"
    ).report
    assert [(stage.name, stage.statement) for stage in report.stages] == [
        ("projection 1", 1),
        ("projection 2", 3),
    ]
    assert report.calls == len(backend.asked)
    assert "statement" in str(report)
    alone = con.sql("SELECT LLM('up', title) FROM films").report
    assert [stage.statement for stage in alone.stages] == [None]
    assert "statement" not in str(alone)


def test_errors_of_all_statements_say_which(con: Connection) -> None:
    with pytest.warns(PartialResultWarning):
        result = con.sql(
            "SELECT LLM('up', title)::INT FROM films WHERE id = 1;"
            "SELECT LLM('up', genre)::DATE FROM films WHERE id < 3"
        )
    assert [(error.statement, error.stage) for error in result.errors] == [
        (1, "projection 1"),
        (2, "projection 2"),
        (2, "projection 2"),
    ]
    assert [stage.errors for stage in result.report.stages] == [1, 2]
    with pytest.raises(QueryError) as caught:
        con.sql("SELECT 1;\nSELECT LLM('up', title) FROM films\nWHERE THEN")
    assert "line 3" in str(caught.value).lower()


def test_a_later_failure_costs_nothing(con: Connection, backend: FakeBackend) -> None:
    for later, kind, said in [
        ("UPDATE films SET title = LLM('up', title)", UnsupportedQueryError, "UPDATE with"),
        ("SELECT LLM('up', id, label := 'x') FROM t", QueryError, "option"),
        ("SELECT LLM('up', titel) FROM films", UnknownColumnError, "titel"),
        ("SELECT titel FROM films", UnknownColumnError, "titel"),
        ("INSERT INTO reviews SELECT LLM('up', title) FROM films", QueryError, "columns"),
        ("CREATE VIEW v AS SELECT LLM('up', id, label := 'x') FROM t", QueryError, "option"),
        ("EXPLAIN (FORMAT json) SELECT LLM('up', id) FROM t", UnsupportedQueryError, "ANALYZE"),
    ]:
        first = "CREATE TABLE t AS SELECT LLM('up', title) AS id FROM films"
        with pytest.raises(kind, match=rf"In statement 3 of 3: .*{said}"):
            con.sql(f"{first}; SELECT 1; {later}")
        assert backend.asked == []
        assert "t" not in con.tables()


def test_what_earlier_statements_write_is_not_checked_too_early(con: Connection) -> None:
    rows = con.sql(
        "SELECT LLM('up', title) FROM films;"
        "ALTER TABLE reviews ADD COLUMN stars INTEGER;"
        "CREATE MACRO first_review() AS (SELECT min(text) FROM reviews WHERE stars IS NULL);"
        "SELECT LLM('up', text), stars, first_review() FROM reviews WHERE id = 10"
    ).fetchall()
    assert rows == [("GREAT", None, "great")]


def test_a_failure_says_what_was_paid_for(con: Connection, backend: FakeBackend) -> None:
    with pytest.raises(LateQueryError, match=r"In statement 2 of 2: .*2 calls were made") as caught:
        con.sql(
            "CREATE TABLE t AS SELECT LLM('up', title) AS x FROM films WHERE id < 3;"
            "SELECT x::INTEGER FROM t"
        )
    assert caught.value.calls == len(backend.asked) == 2
    assert con.sql("SELECT x FROM t ORDER BY x").fetchall() == [("ALIEN",), ("AMELIE",)]


def test_only_the_last_may_be_explained(con: Connection, backend: FakeBackend) -> None:
    explained = con.sql("CREATE TABLE t AS SELECT 1 AS a; EXPLAIN SELECT LLM('up', a) FROM t")
    assert explained.table["calls"].to_pylist() == [1]
    for query in ("EXPLAIN SELECT LLM('up', 1); SELECT 2", "EXPLAIN SELECT 1; EXPLAIN SELECT 2"):
        with pytest.raises(QueryError, match="one at a time"):
            con.sql(query)
    with pytest.raises(QueryError, match="one at a time"):
        con.explain("SELECT 1; SELECT LLM('up', 1)")
    assert backend.asked == []


def test_a_transaction_that_is_rolled_back_leaves_no_table(con: Connection) -> None:
    con.sql("BEGIN; CREATE TABLE t AS SELECT LLM('up', title) AS x FROM films; ROLLBACK")
    assert "t" not in con.tables()
    con.sql("BEGIN; CREATE TABLE t AS SELECT LLM('up', title) AS x FROM films; COMMIT")
    assert con.sql("SELECT count(x) FROM t").fetchall() == [(6,)]


def test_checks_do_not_abort_a_transaction(con: Connection) -> None:
    con.sql("BEGIN; UPDATE films SET genre = 'new' WHERE id = 1")
    query = (
        "SELECT (SELECT max(r.text) FROM reviews r WHERE r.film = f.id), LLM('up', f.genre) "
        "FROM films f WHERE id = 1"
    )
    assert con.sql(query).fetchall() == [("scary", "NEW")]
    con.sql("ROLLBACK")
    assert con.sql(query).fetchall() == [("scary", "HORROR")]


def test_an_aborted_transaction_keeps_its_own_error(con: Connection) -> None:
    con.sql("BEGIN")
    with pytest.raises(QueryError, match="Could not convert"):
        con.sql("SELECT LLM('up', title::INTEGER) FROM films")
    con.sql("ROLLBACK")
    assert con.sql("SELECT LLM('up', 1)").fetchall() == [("1",)]
