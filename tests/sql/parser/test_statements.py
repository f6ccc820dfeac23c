"""Scripts, views, macros, prepared statements and parameters, as statements and in Python."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from relquery.connection import Connection, connect
from relquery.errors import QueryError
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.fakes import FakeBackend
from tests.sql.scripts import Script, scripts

ANSWERS = "CREATE VIEW answers AS SELECT id, title, LLM('up', title) AS loud FROM films"


@scripts(__file__)
def test_statements(script: Script, con: Connection, backend: FakeBackend) -> None:
    script.run(con, backend)


def test_a_view_can_be_copied_to_a_file(con: Connection, tmp_path: Path) -> None:
    con.sql(f"{ANSWERS}; COPY answers TO '{tmp_path / 'v.csv'}'")
    assert con.sql(f"SELECT count(*) FROM '{tmp_path / 'v.csv'}'").fetchall() == [(6,)]


def test_only_one_statement_is_explained_and_errors_know_their_line(con: Connection) -> None:
    with pytest.raises(QueryError, match="one at a time"):
        con.explain("SELECT 1; SELECT LLM('up', 1)")
    with pytest.raises(QueryError, match=r"(?i)line 3"):
        con.sql("SELECT 1;\nSELECT LLM('up', title) FROM films\nWHERE THEN")
    assert "films" in str(con.explain("SELECT id FROM films WHERE id = $n", {"n": 1}))


def test_nothing_is_left_in_a_connection_of_the_user() -> None:
    with duckdb.connect() as own:
        own.execute(SETUP)
        listing = (
            "SELECT view_name FROM duckdb_views() WHERE NOT internal UNION ALL "
            "SELECT function_name FROM duckdb_functions() WHERE NOT internal UNION ALL "
            "SELECT table_name FROM duckdb_tables() UNION ALL SELECT name FROM duckdb_variables() "
            "ORDER BY ALL"
        )
        with connect(FakeBackend(upper_or_length), database=own) as con:
            before = own.execute(listing).fetchall()
            con.sql(f"{ANSWERS}; CREATE MACRO m(x) AS LLM('up', x)")
            con.sql("SELECT m(loud), $v FROM answers", {"v": [1, None]})
            assert len(con.sql("SUMMARIZE answers").fetchall()) == 3
            assert own.execute(listing).fetchall() == before
