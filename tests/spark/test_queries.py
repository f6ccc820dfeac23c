"""Queries give the rows over Spark that they give in DuckDB, and ask each input once."""

from __future__ import annotations

import datetime
import io
import time
from contextlib import redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import relquery as rq
from relquery import errors
from relquery.errors import (
    ConfigError,
    PartialResultWarning,
    QueryError,
    RequestError,
    UnsupportedQueryError,
)
from relquery.spark import SparkConnection, connect
from relquery.spark.shadow import translated
from tests.cases import case_file
from tests.spark.conftest import opened
from tests.spark.stand_in import StandIn, standing_in
from tests.sql.conftest import SETUP, reference_sql, upper_or_length

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning"
)

QUICK = (6, 23)  # of the queries: an aggregate, a limit in order
CASES = [
    pytest.param(*case, marks=() if at in QUICK else pytest.mark.long)
    for at, case in enumerate(case_file(__file__, "queries.txt"))
]


def rows_of(rows: list[Any]) -> list[tuple[Any, ...]]:
    """The rows of either database, to be compared."""
    return [tuple(map(_plain, row)) for row in rows]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, int | Decimal) else value


@pytest.mark.parametrize(("order", "query"), CASES)
def test_rows_are_those_of_duckdb(
    order: str, query: str, con: SparkConnection, server: StandIn, oracle: duckdb.DuckDBPyConnection
) -> None:
    found = rows_of(con.sql(query).collect())
    expected = rows_of(oracle.execute(reference_sql(query)).fetchall())
    if order == "ordered":
        assert found == expected
    else:
        assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert set(server.inputs.values()) <= {1}
    assert sum(stage.calls for stage in con.report.stages) == len(server.asked)


@pytest.mark.long
def test_passages_in_a_list_are_asked_as_on_one_machine(
    con: SparkConnection, server: StandIn
) -> None:
    query = "SELECT id, LLM('up', title, passage := BAG(tags)) AS u FROM films ORDER BY id"
    with rq.connect(model="openai:stand-in", base_url=server.url, api_key="none") as one:
        one.sql(SETUP)
        expected = one.sql(query).fetchall()
    asked = dict(server.inputs)
    server.asked.clear()
    assert rows_of(con.sql(query).collect()) == rows_of(expected)
    assert server.inputs == asked


@pytest.mark.long
def test_names_are_those_of_duckdb(con: SparkConnection) -> None:
    frame = con.sql("SELECT LLM('up', title), id + 1, upper(title) AS t FROM films")
    assert frame.columns == ["llm('up', title)", "(id + 1)", "t"]


def test_a_limit_asks_no_more_than_it_needs(con: SparkConnection, server: StandIn) -> None:
    con.sql("SELECT id FROM films WHERE LLM('up', id) <> '' ORDER BY id LIMIT 2").collect()
    assert len(server.asked) == 2


@pytest.mark.long
def test_parameters_have_one_value_for_both_databases(con: SparkConnection) -> None:
    query = (
        "SELECT id, $day AS day, LLM('up', title, $day) AS u FROM films "
        "WHERE genre = $genre AND stars < $most ORDER BY id LIMIT $n"
    )
    day = datetime.date(2020, 1, 31)
    found = con.sql(query, {"day": day, "genre": "comedy", "most": 4.0, "n": 2})
    assert found.columns == ["id", "day", "u"]
    assert found.collect() == [(3, day, "2020-01-31|BRAZIL")]
    with pytest.raises(UnsupportedQueryError, match="has bytes"):
        con.sql("SELECT LLM('up', title) FROM films WHERE title <> $x", {"x": b"x"})


def test_a_query_without_calls_is_run_by_spark(con: SparkConnection, server: StandIn) -> None:
    assert con.sql("SELECT count(*) FROM films").collect() == [(6,)]
    assert not server.asked


def fails_for_dune(query: str, fields: dict[str, Any]) -> str | None:
    return None if "Dune" in fields.values() else upper_or_length(query, fields)


def test_errors_are_rows_and_the_report_counts_them(spark: SparkSession) -> None:
    with standing_in(fails_for_dune) as server, opened(spark, server) as con:
        with pytest.warns(PartialResultWarning, match="1 LLM value is missing"):
            frame = con.sql("SELECT id, LLM('up', title) AS u FROM films")
        assert [row.u for row in frame.collect() if row.id == 6] == [None]
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


@pytest.mark.long
def test_on_error_raise_ends_the_query(spark: SparkSession) -> None:
    with standing_in(fails_for_dune) as server:
        con = opened(spark, server, on_error="raise")
        with con, pytest.raises(RequestError, match="out of spice"):
            con.sql("SELECT LLM('up', title) FROM films")


def test_what_cannot_be_is_said_before_a_call(con: SparkConnection, server: StandIn) -> None:
    for query, error, message in case_file(__file__, "queries_refused.txt"):
        with pytest.raises(getattr(errors, error), match=message):
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
            "UNION ALL SELECT 7, LLM('up', title := coalesce('new'), genre) "
            "FROM films WHERE id = 1"
        )
        assert sorted(more.collect())[:3] == sorted(first)[:3]
        assert con.report.ledger_hits == asked
        assert con.report.calls == 1
    assert len(server.asked) == asked + 1
    assert not [path for path in tmp_path.iterdir() if path.name == "runs" and any(path.iterdir())]


@pytest.mark.long
def test_progress_counts_inputs_as_they_are_answered(spark: SparkSession) -> None:
    def slowly(query: str, fields: dict[str, Any]) -> str:
        time.sleep(0.6)
        return upper_or_length(query, fields)

    told: list[tuple[str, int, int]] = []
    with (
        standing_in(slowly) as server,
        opened(
            spark, server, concurrency=1, partitions=1, progress=lambda *each: told.append(each)
        ) as con,
    ):
        con.sql("SELECT LLM('up', title) FROM films")
    assert {(stage, total) for stage, _, total in told} == {("projection 1", 5)}
    counts = [done for _, done, _ in told]
    assert counts[0] == 0
    assert counts[-1] == 5
    assert len(counts) > 3
    assert counts == sorted(set(counts))


def test_wrong_settings_are_refused(spark: SparkSession, server: StandIn) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"partitions": 2.5}, "partitions is 2.5"),
        ({"order": "best"}, "order"),
        ({"concurency": 3}, "Did you mean .concurrency"),
        ({"guard": True}, "option .guard. of relquery.spark.connect"),
        ({"timeout": "x"}, "timeout is"),
        ({"ledger": 7}, "ledger is 7"),
        ({"progress": 5}, "progress is 5"),
    ]
    for given, message in wrong:
        with pytest.raises(ConfigError, match=message):
            opened(spark, server, **given)
    with pytest.raises(ConfigError, match="Give a session"):
        connect("spark", "openai:x")  # type: ignore[arg-type]


@pytest.mark.long
def test_frames_can_be_read_again(con: SparkConnection, server: StandIn) -> None:
    frame: DataFrame = con.sql("SELECT id, LLM('up', title) AS u FROM films")
    first = sorted(frame.collect())
    assert sorted(frame.where("id > 0").collect()) == first
    assert len(server.asked) == 4  # one title is NULL


@pytest.mark.long
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


@pytest.mark.long
def test_plans_do_not_grow_with_each_call(con: SparkConnection, server: StandIn) -> None:
    def size(calls: int) -> int:
        items = ", ".join(f"LLM('up', title, n := {each} + 0) AS u{each}" for each in range(calls))
        frame = con.sql(f"SELECT id, {items} FROM films")
        assert len(frame.columns) == calls + 1
        shown = io.StringIO()
        with redirect_stdout(shown):
            frame.explain(extended=True)
        return len(shown.getvalue())

    assert size(6) < 3 * size(2)
    assert set(server.inputs.values()) == {1}


@pytest.mark.long
def test_results_stay_when_later_queries_run(con: SparkConnection) -> None:
    first = con.sql("SELECT id, LLM('up', title) AS u FROM films")
    con.sql("SELECT LLM('up', genre) AS u FROM films")
    con.sql("SELECT 1")
    assert len(first.collect()) == 6


@pytest.mark.long
def test_calls_may_have_all_named_arguments(con: SparkConnection, server: StandIn) -> None:
    call = "AI_CLASSIFY(title, ['a', 'b'], instruction := 'x', multi := true)"
    with pytest.warns(PartialResultWarning):  # the stand-in does not answer with a list
        con.sql(f"SELECT id, {call} FROM films")
    assert len(server.inputs) == 4


@pytest.mark.long
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
