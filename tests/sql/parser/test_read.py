"""What statements write, and forms of SELECT that make tables and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relquery.connection import Connection
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


def test_a_table_without_data_asks_nothing_and_has_its_columns(
    con: Connection, backend: FakeBackend, capfd: pytest.CaptureFixture[str]
) -> None:
    for at, query in enumerate([UP, f"({UP})", f"WITH f AS (SELECT * FROM films) {UP}"]):
        for name, columns in ((f"plain{at}", ["id", "up"]), (f"o{at}(x, y)", ["x", "y"])):
            con.sql(f"CREATE TABLE {name} AS {query} WITH NO DATA")
            assert con.tables()[name.partition("(")[0]] == columns
    assert con.sql("EXPLAIN CREATE TABLE p AS SELECT LLM('up', 1) WITH NO DATA").fetchall() == []
    assert not backend.asked
    assert con.sql("SELECT count(*) FROM plain0, o0").fetchall() == [(0,)]
    con.sql(f"CREATE OR REPLACE TABLE plain0 AS {UP} WITH DATA")
    assert con.sql("SELECT up FROM plain0 WHERE id = 6").fetchall() == [("DUNE",)]
    assert capfd.readouterr().err == ""


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
