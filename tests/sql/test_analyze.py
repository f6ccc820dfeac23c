"""EXPLAIN ANALYZE runs a statement, and gives a row for each of its stages."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.connection import Connection
from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql.explain.explanation import MEASURED
from tests.sql.conftest import asked_of, opened
from tests.sql.fakes import FakeBackend

EVEN = "LLM('yes', title) = 'Yes'"


def analyzed(con: Connection, query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = con.sql(f"EXPLAIN ANALYZE {query}").arrow().to_pylist()
    return rows


def test_it_gives_what_the_stages_took(con: Connection, backend: FakeBackend) -> None:
    query = f"SELECT LLM('up', genre) FROM films WHERE {EVEN}"
    result = con.sql(f"EXPLAIN ANALYZE {query}")
    asked = [one.prompt for one in backend.asked]
    assert result.arrow().schema == MEASURED
    assert [(row["stage"], row["rows"], row["calls"]) for row in result.arrow().to_pylist()] == [
        (one.name, one.rows, one.calls) for one in result.report.stages
    ]
    assert "filter 1" in repr(result)
    assert "filter 1" in result._repr_html_()
    backend.asked.clear()
    con.sql(query)
    assert [one.prompt for one in backend.asked] == asked


def test_it_may_write_and_stand_among_other_statements() -> None:
    con = opened()
    (create,) = analyzed(con, "CREATE TABLE loud AS SELECT LLM('up', title) AS t FROM films")
    assert create["calls"] == 4
    assert con.sql("SELECT count(*) FROM loud").fetchall() == [(6,)]
    result = con.sql(
        f"CREATE TABLE seen AS SELECT id, title FROM films WHERE {EVEN};"
        "EXPLAIN ANALYZE INSERT INTO seen SELECT id, LLM('up', genre) FROM films;"
        f"EXPLAIN ANALYZE SELECT LLM('up', id) FROM seen WHERE {EVEN}"
    )
    assert result.arrow()["stage"].to_pylist() == ["filter 2", "projection 2"]
    assert len(result.report.stages) == 4
    con.close()


def test_what_is_wrong_is_refused_before_a_call(con: Connection) -> None:
    asked = asked_of(con)
    for option in ("(ANALYZE, FORMAT json)", "ANALYZE (FORMAT json)", "(FORMAT json)"):
        with pytest.raises(UnsupportedQueryError, match="EXPLAIN ANALYZE to run it"):
            con.sql(f"EXPLAIN {option} SELECT LLM('up', id) FROM films")
    with pytest.raises(QueryError, match="titel"):
        con.sql("EXPLAIN ANALYZE SELECT LLM('up', titel) FROM films")
    assert not asked
    assert con.sql("EXPLAIN ANALYZE SELECT 1").columns == ["explain_key", "explain_value"]
    assert con.sql("EXPLAIN (ANALYZE) SELECT LLM('up', 1)").arrow().schema == MEASURED
