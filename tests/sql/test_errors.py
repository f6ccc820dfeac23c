"""What is wrong with a query is said before any call is made, and nothing foreign leaks."""

from __future__ import annotations

import contextlib
import re

import duckdb
import pytest
from rich.cells import cell_len

from relquery.connection import Connection
from relquery.errors import QueryError, RelqueryError, SqlSyntaxError, UnknownTableError
from tests.sql.fakes import FakeBackend
from tests.sql.scripts import Script, scripts


@scripts(__file__)
def test_statements(script: Script, con: Connection, backend: FakeBackend) -> None:
    script.run(con, backend)


def test_a_python_variable_is_no_table(con: Connection) -> None:
    flims = object()
    with pytest.raises(UnknownTableError):
        con.sql("SELECT LLM('up', id) FROM flims")
    del flims


def test_a_caret_under_a_tab_keeps_the_tab(con: Connection) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        con.sql("SELECT 1\n\tFROM films FROM films")
    shown, caret = str(caught.value).split("\n")[-2:]
    assert shown == "  \tFROM films FROM films"
    assert caret == "  \t" + " " * len("FROM films ") + "^"


def test_an_empty_query_is_said_to_be_empty(con: Connection) -> None:
    for text in ["", " ;  ", "-- nothing", ";;"]:
        with pytest.raises(QueryError, match="The query is empty"):
            con.sql(text)


def test_a_query_that_is_not_text_is_refused(con: Connection) -> None:
    with pytest.raises(QueryError, match="it must be a string of SQL"):
        con.sql(5)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="lone surrogate"):
        con.sql("SELECT LLM('\ud83c', id) FROM films")


def test_a_value_that_duckdb_cannot_take_is_named_in_plain_words(con: Connection) -> None:
    for value, kind in [(con.database.connection, "DuckDBPyConnection"), ({1}, "set")]:
        with pytest.raises(QueryError, match=f"type {kind}.*of type '{kind}'") as caught:
            con.sql("SET VARIABLE v = $x", {"x": value})
        assert not re.search("<class|_duckdb", str(caught.value))


def test_sql_that_does_not_parse_is_shown_with_line_column_and_caret(con: Connection) -> None:
    for query, line, column in [
        ("SELEC 1", 1, 1),
        ("SELECT LLM('up', title)\nFORM films f\nWHERE id = 1", 2, 6),
        ("SELECT LLM('up', title FROM films", 1, 24),
        ("SELECT '🎉', LLM('up', 'open) FROM films", 1, 23),
        ("SELECT '東京', 1 FORM films", 1, 21),
        (f"SELECT {'1, ' * 60}LLM('up', title) FORM films f", 1, 210),
        ("SELECT 1;\nSELEC 2", 2, 1),
    ]:
        with pytest.raises(SqlSyntaxError) as caught:
            con.sql(query)
        assert (caught.value.line, caught.value.column) == (line, column)
        shown, caret = str(caught.value).split("\n")[-2:]
        assert shown.strip() == query.split("\n")[line - 1]
        before = query.split("\n")[line - 1][: column - 1]
        assert caret.index("^") == 2 + cell_len(before)  # a terminal shows wide characters as two


def test_whatever_the_text_only_our_errors_are_raised(con: Connection) -> None:
    odd = ["SELECT LLM('x', *) FROM films, films", "SELECT LLM(*)", "SELECT LLM('x',,)", "LLM("]
    for text in ["", ";", "--", "SELECT", "(", "'", "\0", *odd]:
        with contextlib.suppress(RelqueryError):
            con.sql(text)


def test_messages_are_read_because_relations_have_no_errors_as_json() -> None:
    with duckdb.connect() as plain:
        plain.execute("SET errors_as_json = true")
        with pytest.raises(duckdb.Error, match=r"^Binder Error: Referenced column") as unbound:
            plain.sql("SELECT nix FROM range(1)")
        assert "{" not in str(unbound.value)
        plain.execute("BEGIN")
        with pytest.raises(duckdb.Error):
            plain.execute("SELECT nix FROM range(1)")
        # That would have one, but it ends the user's transaction.
        with pytest.raises(duckdb.Error, match="transaction is aborted"):
            plain.execute("SELECT 1")
