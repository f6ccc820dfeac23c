"""Queries give the rows over Spark that they give in DuckDB, and ask each input once."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import relquery as rq
from relquery.errors import (
    ConfigError,
    PartialResultWarning,
    QueryError,
    RequestError,
    SqlSyntaxError,
    UnknownColumnError,
    UnsupportedQueryError,
)
from relquery.spark import SparkConnection, connect
from relquery.spark.planning.failures import translated
from tests.spark.conftest import opened
from tests.spark.stand_in import StandIn, standing_in
from tests.sql.conftest import SETUP, reference_sql, upper_or_length

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning"
)

QUERIES = [
    "SELECT id, LLM('up', title) AS u FROM films",
    "SELECT id, tags[1], id // 2, LLM('up', info.lang) FROM films",
    "SELECT id FROM films WHERE LLM('yes', title) = 'Yes' AND LLM('len', genre) > 5 AND stars > 3",
    "SELECT id FROM films WHERE LLM('yes', title) = 'Yes' OR LLM('up', genre) = 'DRAMA'",
    "SELECT id FROM films WHERE LLM('up', title) IN (SELECT upper(title) FROM films WHERE seen)",
    "SELECT title, LLM('up', LLM('up', genre), title) FROM films WHERE seen",
    "SELECT genre, count(*), sum(LLM('len', title)) FROM films GROUP BY genre",
    "SELECT LLM('up', genre) AS g, max(id) FROM films GROUP BY g HAVING count(*) > 1",
    "SELECT upper(LLM('up', genre)) || '!' AS g, avg(LLM('len', title) + 1) FROM films GROUP BY 1",
    "SELECT f.title, r.text FROM films f JOIN reviews r ON f.id = r.film AND "
    "LLM('yes', r.text) = 'No'",
    "SELECT f.id, r.id FROM films f LEFT JOIN reviews r ON f.id = r.film "
    "AND LLM('yes', r.text) = 'No'",
    "SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id "
    "AND LLM('yes', r.text) = 'No')",
    "WITH good AS (SELECT *, LLM('up', text) AS u FROM reviews) "
    "SELECT g.u, f.title FROM good g JOIN films f ON f.id = g.film",
    "SELECT a, count(*) FROM (SELECT LLM('yes', title) AS a FROM films) GROUP BY a",
    "SELECT LLM('up', title) FROM films UNION ALL SELECT LLM('up', text) FROM reviews",
    "SELECT id, row_number() OVER (PARTITION BY LLM('yes', title) ORDER BY id) FROM films",
    "SELECT CASE WHEN seen THEN LLM('up', title) ELSE 'no' END FROM films",
    "SELECT count(*) FROM films WHERE id > 100 AND LLM('yes', title) = 'Yes'",
    "SELECT LLM('up', text) FROM empty",
    "SELECT id, (SELECT max(LLM('up', text)) FROM reviews) AS m FROM films WHERE id > "
    "(SELECT count(*) FROM reviews WHERE LLM('yes', text) = 'maybe')",
    "SELECT id, n, LLM('up', title) AS u FROM (SELECT NULL AS n, id, title FROM films)",
]
ORDERED = [
    "SELECT id, LLM('up', title) FROM films ORDER BY id DESC LIMIT 2",
    "SELECT id FROM films WHERE LLM('yes', title) = 'No' ORDER BY id LIMIT 2 OFFSET 1",
    "SELECT id, LLM('up', genre) AS u FROM films ORDER BY u, id LIMIT 3",
    "SELECT DISTINCT ON (u) LLM('up', genre) AS u, id FROM films ORDER BY u, id LIMIT 3",
    "SELECT id FROM films QUALIFY row_number() OVER (PARTITION BY LLM('up', genre) ORDER BY id) "
    "= 1 ORDER BY id LIMIT 3",
]


def rows_of(rows: list[Any]) -> list[tuple[Any, ...]]:
    """The rows of either database, to be compared."""
    return [tuple(map(_plain, row)) for row in rows]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, int | Decimal) else value


@pytest.mark.parametrize("query", QUERIES + ORDERED)
def test_rows_are_those_of_duckdb(
    query: str, con: SparkConnection, server: StandIn, oracle: duckdb.DuckDBPyConnection
) -> None:
    found = rows_of(con.sql(query).collect())
    expected = rows_of(oracle.execute(reference_sql(query)).fetchall())
    if query in ORDERED:
        assert found == expected
    else:
        assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert set(server.inputs.values()) <= {1}
    assert sum(stage.calls for stage in con.report.stages) == len(server.asked)


def test_passages_in_a_list_are_asked_as_on_one_machine(
    con: SparkConnection, server: StandIn
) -> None:
    query = "SELECT id, LLM('up', title, BAG(tags) AS passage) AS u FROM films ORDER BY id"
    with rq.connect(model="openai:stand-in", base_url=server.url, api_key="none") as one:
        one.sql(SETUP)
        expected = one.sql(query).fetchall()
    asked = dict(server.inputs)
    server.inputs.clear()
    assert rows_of(con.sql(query).collect()) == rows_of(expected)
    assert server.inputs == asked


def test_names_are_those_of_duckdb(con: SparkConnection) -> None:
    frame = con.sql("SELECT LLM('up', title), id + 1, upper(title) AS t FROM films")
    assert frame.columns == ["llm('up', title)", "(id + 1)", "t"]


def test_a_limit_asks_no_more_than_it_needs(con: SparkConnection, server: StandIn) -> None:
    con.sql("SELECT id FROM films WHERE LLM('up', id) <> '' ORDER BY id LIMIT 2").collect()
    assert len(server.asked) == 2


def test_a_query_without_calls_is_run_by_spark(con: SparkConnection, server: StandIn) -> None:
    assert con.sql("SELECT count(*) FROM films").collect() == [(6,)]
    assert not server.asked


def test_errors_are_rows_and_the_report_counts_them(spark: SparkSession) -> None:
    def fails_for_dune(query: str, fields: dict[str, Any]) -> str | None:
        return None if "Dune" in fields.values() else upper_or_length(query, fields)

    with standing_in(fails_for_dune) as server, opened(spark, server) as con:
        with pytest.warns(PartialResultWarning, match="1 LLM value is missing"):
            frame = con.sql("SELECT id, LLM('up', title) AS u FROM films")
        assert dict(frame.collect())[6] is None
        (error,) = con.errors.collect()
        assert error.stage == "projection 1"
        assert error.inputs == {"title": "Dune"}
        assert "out of spice" in error.error
        assert con.report.errors == 1
        with pytest.warns(PartialResultWarning, match="5 LLM values are missing"):
            con.sql(
                "SELECT CAST(LLM('up', genre) AS INTEGER) FROM films WHERE genre <> 'drama' "
                "OR LLM('up', title) = 'DUNE'"
            )


def test_on_error_raise_ends_the_query(spark: SparkSession) -> None:
    def fails_for_dune(query: str, fields: dict[str, Any]) -> str | None:
        return None if "Dune" in fields.values() else upper_or_length(query, fields)

    with standing_in(fails_for_dune) as server:
        con = opened(spark, server, on_error="raise")
        with con, pytest.raises(RequestError, match="out of spice"):
            con.sql("SELECT LLM('up', title) FROM films")


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT LLM('up', titel) FROM films", UnknownColumnError, "titel"),
        ("SELECT LLM('up', title) FROM film", QueryError, "Did you mean 'films'"),
        ("SELECT LLM('up', title FROM films", SqlSyntaxError, "title"),
        ("SELECT nonsense(LLM('up', title)) FROM films", QueryError, "nonsense"),
        ("CREATE TABLE x AS SELECT LLM('up', title) FROM films", UnsupportedQueryError, "saveAs"),
        ("SELECT AI_AGG('sum up', title) FROM films", UnsupportedQueryError, "one machine"),
        ("SELECT LLM('up', r.v) FROM range(3) r(v)", UnsupportedQueryError, "view of Spark"),
        ("SELECT 1; SELECT 2", UnsupportedQueryError, "one at a time"),
        (
            "SELECT genre, max(LLM('up', id)), (SELECT count(*) FROM reviews r WHERE "
            "r.text > f.genre) FROM films f GROUP BY genre",
            UnsupportedQueryError,
            "Spark cannot run a part of the query",
        ),
    ],
)
def test_what_cannot_be_is_said_before_a_call(
    query: str, error: type[Exception], message: str, con: SparkConnection, server: StandIn
) -> None:
    with pytest.raises(error, match=message):
        con.sql(query)
    assert not server.asked


def test_later_connections_find_the_answers_in_the_ledger(
    spark: SparkSession, server: StandIn, tmp_path: Path
) -> None:
    query = "SELECT id, LLM('up', title, genre) AS u FROM films"
    with opened(spark, server, ledger=tmp_path) as con:
        first = con.sql(query).collect()
    asked = len(server.asked)
    with opened(spark, server, ledger=tmp_path) as con:
        more = con.sql(
            "SELECT id, LLM('up', title, genre) AS u FROM films WHERE id <> 4 "
            "UNION ALL SELECT 7, LLM('up', 'new' AS title, genre) "
            "FROM films WHERE id = 1"
        )
        assert sorted(more.collect())[:3] == sorted(first)[:3]
        assert con.report.ledger_hits == asked
        assert con.report.calls == 1
    assert len(server.asked) == asked + 1
    assert not [path for path in tmp_path.iterdir() if path.name == "runs" and any(path.iterdir())]


def test_progress_counts_inputs_as_they_are_answered(spark: SparkSession) -> None:
    def slowly(query: str, fields: dict[str, Any]) -> str:
        time.sleep(0.6)
        return upper_or_length(query, fields)

    told: list[tuple[str, int, int]] = []
    with (
        standing_in(slowly) as server,
        opened(spark, server, concurrency=1, progress=lambda *each: told.append(each)) as con,
    ):
        con.sql("SELECT LLM('up', title) FROM films")
    assert {(stage, total) for stage, _, total in told} == {("projection 1", 5)}
    counts = [done for _, done, _ in told]
    assert counts[0] == 0
    assert counts[-1] == 5
    assert len(counts) > 3
    assert counts == sorted(set(counts))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"partitions": 2.5}, "partitions is 2.5"),
        ({"order": "best"}, "order"),
        ({"concurency": 3}, "Did you mean .concurrency"),
        ({"guard": True}, "option .guard. of relquery.spark.connect"),
        ({"timeout": "x"}, "timeout is"),
        ({"ledger": 7}, "ledger is 7"),
        ({"progress": 5}, "progress is 5"),
    ],
)
def test_wrong_settings_are_refused(
    given: dict[str, Any], message: str, spark: SparkSession, server: StandIn
) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(spark, server, **given)


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(ConfigError, match="Give a session"):
        connect("spark", "openai:x")  # type: ignore[arg-type]


def test_frames_can_be_read_again(con: SparkConnection, server: StandIn) -> None:
    frame: DataFrame = con.sql("SELECT id, LLM('up', title) AS u FROM films")
    first = sorted(frame.collect())
    assert sorted(frame.where("id > 0").collect()) == first
    assert len(server.asked) == 5


def test_folders_may_have_any_name_and_closed_connections_ask_nothing(
    spark: SparkSession, server: StandIn, tmp_path: Path
) -> None:
    query = "SELECT id, LLM('up', text) AS a FROM reviews WHERE LLM('length', text) <> '3'"
    folder = tmp_path / "a b ü %20 #h *[1]{a,b}?q"
    found = []
    for _ in range(2):
        with opened(spark, server, ledger=folder) as con:
            found.append(sorted(map(tuple, con.sql(query).collect())))
    assert found[0] == found[1] != []
    assert set(server.inputs.values()) == {1}
    with pytest.raises(QueryError, match="connection is closed"):
        con.sql(query)
    assert set(server.inputs.values()) == {1}


def test_plans_do_not_grow_with_each_call(con: SparkConnection, server: StandIn) -> None:
    def size(calls: int) -> int:
        items = ", ".join(f"LLM('up', title, {each} AS n) AS u{each}" for each in range(calls))
        frame = con.sql(f"SELECT id, {items} FROM films")
        assert len(frame.columns) == calls + 1
        return len(frame._jdf.queryExecution().toString())  # type: ignore[operator]

    assert size(6) < 3 * size(2)
    assert set(server.inputs.values()) == {1}


def test_results_stay_when_later_queries_run(con: SparkConnection) -> None:
    first = con.sql("SELECT id, LLM('up', title) AS u FROM films")
    con.sql("SELECT LLM('up', genre) AS u FROM films")
    con.sql("SELECT 1")
    assert len(first.collect()) == 6


def test_calls_may_have_all_named_arguments(con: SparkConnection, server: StandIn) -> None:
    call = "AI_CLASSIFY(title, ['a', 'b'], instruction := 'x', multi := true)"
    with pytest.warns(PartialResultWarning):  # the stand-in does not answer with a list
        con.sql(f"SELECT id, {call} FROM films")
    assert len(server.inputs) == 5


def test_damaged_lines_of_a_ledger_are_asked_again(
    spark: SparkSession, server: StandIn, tmp_path: Path
) -> None:
    query = "SELECT id, LLM('up', title) AS u FROM films"
    with opened(spark, server, ledger=tmp_path) as con:
        first = sorted(con.sql(query).collect())
    file = next(tmp_path.glob("*.answers"))
    lines = file.read_bytes().splitlines(keepends=True)
    lines[0] = lines[0].replace(b'", "', b'", "\xff', 1)
    file.write_bytes(b"".join(lines))
    with opened(spark, server, ledger=tmp_path) as con:
        assert sorted(con.sql(query).collect()) == first
        assert con.report.calls == 1


def test_workers_without_relquery_are_named() -> None:
    from pyspark.errors import PythonException

    said = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'relquery'\n"
    with pytest.raises(ConfigError, match="PYSPARK_PYTHON"), translated():
        raise PythonException(said)
