"""What statements write, and forms of SELECT that make tables and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relquery.connection import Connection
from relquery.errors import UnsupportedQueryError
from tests.sql.fakes import FakeBackend
from tests.sql.scripts import Script, scripts

UP = "SELECT id, LLM('up', title) AS up FROM films"
ITEMS = (Path(__file__).parent / "items.txt").read_text(encoding="utf-8").splitlines()


@scripts(__file__)
def test_statements(script: Script, con: Connection, backend: FakeBackend) -> None:
    script.run(con, backend)


def test_answers_can_be_copied_to_a_file(con: Connection, tmp_path: Path) -> None:
    con.sql(f"COPY ({UP}) TO '{tmp_path}/up.csv'")
    assert "DUNE" in (tmp_path / "up.csv").read_text()


def test_a_table_may_say_that_it_has_data(con: Connection, backend: FakeBackend) -> None:
    con.sql(f"CREATE OR REPLACE TABLE plain(x, y) AS {UP} WITH DATA")
    assert con.sql("SELECT y FROM plain WHERE x = 6").fetchall() == [("DUNE",)]
    backend.asked.clear()
    con.sql(f"CREATE TABLE nothing AS {UP} LIMIT 0")
    assert con.tables()["nothing"] == ["id", "up"]
    assert not backend.asked
    with pytest.raises(UnsupportedQueryError, match="Write LIMIT 0"):
        con.sql(f"CREATE TABLE other AS {UP} WITH NO DATA")


def test_what_is_made_has_the_columns_of_its_query(con: Connection) -> None:
    for query, kind in [
        ("SELECT id::VARCHAR, if(id > 1, 1, 2), LLM('up', title), -id FROM films", "VIEW"),
        ("SELECT genre, list(id), max(LLM('up', id)) FROM films GROUP BY genre", "TABLE"),
        ("(SELECT id::VARCHAR FROM films) UNION ALL SELECT LLM('up', id) FROM films", "TABLE"),
        ("WITH a AS (SELECT id::VARCHAR AS k FROM films) SELECT k || 'x', LLM('up', k) FROM a",
         "VIEW"),
        ("SELECT *, LLM('up', id) FROM films", "TABLE"),
    ]:  # fmt: skip
        names = con.sql(query).columns
        con.sql(f"CREATE OR REPLACE {kind} made{kind} AS {query}")
        assert con.sql(f"SELECT * FROM made{kind}").columns == names


@pytest.mark.parametrize(
    "rest", ["", *(pytest.param(one, marks=pytest.mark.long) for one in
                   ("WHERE LLM('up', id) <> '0'", "GROUP BY ALL"))]
)  # fmt: skip
def test_items_are_those_of_plain_duckdb(
    rest: str, con: Connection, reference: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    query = f"SELECT {', '.join(ITEMS)}, LLM('up', title) AS u FROM films {rest} ORDER BY u, 1"
    assert con.sql(query).fetchall() == reference(query)
