"""EXPLAIN ANALYZE runs a statement, and shows what was predicted of each stage beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relquery.connection import Connection, connect
from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql.explain.explanation import ANALYSIS_SCHEMA, analysis_cells
from tests.cases import values
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.explain.readers import Reader

EVEN = "LLM('yes', title) = 'Yes'"


@pytest.fixture
def backend() -> Reader:
    return Reader(upper_or_length)


@pytest.fixture
def con(backend: Reader) -> Iterator[Connection]:
    with connect(backend) as con:
        con.database.execute(SETUP)
        numbers = range(200)
        con.register(
            "t",
            {
                "a": ["x" * (7 * at % 13 + 1) + str(at) for at in numbers],
                "b": [f"word {at % 50:03}" for at in numbers],
            },
        )
        yield con


def analyzed(con: Connection, query: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = con.sql(f"EXPLAIN ANALYZE {query}", **options).arrow().to_pylist()
    return rows


LATER = values(__file__, "later.txt")


@pytest.mark.parametrize(
    "query",
    [pytest.param(query, marks=[] if at in (4, 8) else pytest.mark.long)
     for at, query in enumerate(LATER)],
)  # fmt: skip
def test_later_stages_are_predicted_within_a_tenth_and_5_points(
    query: str, con: Connection
) -> None:
    stages = analyzed(con, query, order="ggr")
    assert len(stages) > 1
    for stage in stages:
        for name in ("rows", "calls", "prompt_tokens"):
            assert stage[f"predicted_{name}"] == pytest.approx(stage[name], rel=0.1), stage
        assert stage["predicted_hit_rate"] == pytest.approx(stage["hit_rate"], abs=0.05), stage


def test_the_run_is_that_of_the_statement_alone(con: Connection, backend: Reader) -> None:
    query = LATER[3]
    result = con.sql(f"EXPLAIN ANALYZE {query}")
    asked = [one.prompt for one in backend.asked]
    with connect(Reader(upper_or_length)) as other:
        other.register("t", con.sql("FROM t").arrow())
        plain = other.sql(query)
        assert isinstance(other.backend, Reader)
        assert [one.prompt for one in other.backend.asked] == asked
    assert result.report.calls == plain.report.calls == len(asked)
    assert result.arrow().schema == ANALYSIS_SCHEMA


def test_answers_of_the_ledger_are_predicted_and_the_ledger_learns(con: Connection) -> None:
    query = "SELECT LLM('up', a) FROM t WHERE LLM('yes', a) = 'Yes'"
    con.sql("SELECT LLM('yes', a) FROM t LIMIT 50", max_tokens=8)
    first, second = analyzed(con, query, max_tokens=8)
    assert (first["from_ledger"], first["predicted_calls"], first["calls"]) == (50, 150, 150)
    assert second["predicted_calls"] == second["calls"] > 0
    assert [one["calls"] for one in analyzed(con, query, max_tokens=8)] == [0, 0]


def test_a_statement_that_writes_does_so(con: Connection) -> None:
    (create,) = analyzed(con, "CREATE TABLE loud AS SELECT LLM('up', title) AS t FROM films")
    assert create["predicted_calls"] == create["calls"] == 4
    con.sql("CREATE TABLE copy AS FROM films")
    (insert,) = analyzed(con, "INSERT INTO copy (title) SELECT LLM('up', genre) FROM copy")
    assert (insert["predicted_rows"], insert["rows"], insert["calls"]) == (6, 6, 3)
    assert con.sql("SELECT count(*) FROM copy").fetchall() == [(12,)]
    assert con.sql("SELECT count(*) FROM loud").fetchall() == [(6,)]


def test_it_may_stand_among_other_statements(con: Connection) -> None:
    result = con.sql(
        "CREATE TABLE seen AS SELECT id, title FROM films WHERE LLM('yes', title) = 'Yes';"
        "EXPLAIN ANALYZE INSERT INTO seen SELECT id, LLM('up', genre) FROM films;"
        f"EXPLAIN ANALYZE SELECT LLM('up', id) FROM seen WHERE {EVEN}"
    )
    rows = result.arrow().to_pylist()
    assert [row["stage"] for row in rows] == ["filter 2", "projection 2"]
    assert all(row["predicted_rows"] == row["rows"] > 0 for row in rows)
    assert len(result.report.stages) == 4


def test_other_options_of_analyze_are_refused(con: Connection, backend: Reader) -> None:
    assert (
        con.sql("EXPLAIN (ANALYZE) SELECT LLM('up', id) FROM films").arrow().schema
        == ANALYSIS_SCHEMA
    )
    count = len(backend.asked)
    for option in ("(ANALYZE, FORMAT json)", "ANALYZE (FORMAT json)", "(FORMAT json)"):
        with pytest.raises(UnsupportedQueryError, match="EXPLAIN ANALYZE to run it"):
            con.sql(f"EXPLAIN {option} SELECT LLM('up', id) FROM films")
    assert len(backend.asked) == count


def test_a_wrong_statement_is_refused_before_a_call(con: Connection, backend: Reader) -> None:
    before = con.tables()
    with pytest.raises(QueryError, match="titel"):
        con.sql("EXPLAIN ANALYZE SELECT LLM('up', titel) FROM films")
    assert backend.asked == []
    assert con.sql("EXPLAIN ANALYZE SELECT 1").columns == ["explain_key", "explain_value"]
    con.sql("PREPARE p AS SELECT LLM('up', title) FROM films WHERE id > $1")
    (stage,) = analyzed(con, "EXECUTE p(4)")
    assert (stage["predicted_rows"], stage["rows"]) == (2, 2)
    assert con.tables() == before  # nothing stays behind
    assert con.ledger is not None


def test_what_is_known_of_no_stage_is_not_shown(con: Connection) -> None:
    table = con.sql(f"EXPLAIN ANALYZE {LATER[0]}").arrow()
    shown = dict(analysis_cells(table))
    assert shown["rows"] == ["200 / 200", "100 / 100"]
    assert shown["asks"] == ["yes (a)", "up (b)"]
    assert "/" not in "".join(shown["seconds"])  # the backend does not say what steps cost


@pytest.mark.parametrize(
    ("guard", "part"), [(None, "SELECT LLM('yes', a, b) FROM t LIMIT 20"), (0.9, "SELECT 1")]
)
def test_a_warm_ledger_is_predicted(guard: Any, part: str, tmp_path: Path) -> None:
    query = """SELECT LLM('up', a, b) FROM t WHERE LLM('yes', a, b) = 'Yes' OR LLM('len', b) = '9'
        UNION ALL SELECT LLM('up', LLM('len', a)) FROM t LIMIT 150"""
    table = {
        "a": [f"{at % 30:03}" for at in range(200)],
        "b": [f"b{at // 20}" for at in range(200)],
    }
    options: Any = {"ledger": tmp_path / "run.db", "guard": guard, "guard_rows": 9}
    calls = []
    for before in (part, "SELECT 1"):
        with connect(Reader(upper_or_length), **options) as con:
            con.register("t", table)
            con.sql(before)
        with connect(Reader(upper_or_length), **options) as con:
            con.register("t", table)
            stages = analyzed(con, query)
        for stage in stages:
            for name in ("rows", "calls", "from_ledger", "prompt_tokens"):
                assert stage[f"predicted_{name}"] == stage[name], stage
        calls.append(sum(stage["calls"] for stage in stages))
    assert calls[0] > calls[1] == 0
