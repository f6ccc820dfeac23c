"""A connection brings a database, a backend and a ledger together, and survives what happens."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import pandas as pd
import pytest

from relquery.connection import connect
from relquery.errors import ConfigError, MarkupError, QueryError
from relquery.prompt import Answer, Finish, Prompt, Sampling

TABLE = {"id": list(range(200)), "text": [f"row {i}" for i in range(200)]}


class Echo:
    """Answers with the row's text in upper case; can stop in the middle."""

    def __init__(self, name: str = "echo", stop_after: int | None = None) -> None:
        self.name, self.stop_after = name, stop_after
        self.asked = 0
        self.cancelled = self.closed = False

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        try:
            for index, prompt in enumerate(prompts):
                if self.asked == self.stop_after:
                    raise KeyboardInterrupt
                self.asked += 1
                found = re.search('"text": "([^"]*)"', "".join(str(s.content) for s in prompt))
                text = found[1].upper() if found else "?"
                yield index, Answer(text, Finish.STOP, None, 10, 4, 2)
        finally:
            self.cancelled = True

    def close(self) -> None:
        self.closed = True


QUERY = "SELECT id, LLM('up', text) AS up FROM t ORDER BY id"


def test_an_interrupted_query_leaves_the_connection_usable_and_its_answers_known() -> None:
    backend = Echo(stop_after=120)
    with connect(backend) as con:
        con.register("t", TABLE)
        with pytest.raises(KeyboardInterrupt):
            con.sql(QUERY)
        assert con.sql("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
        backend.stop_after = None
        result = con.sql(QUERY)
    assert result.fetchall()[199] == (199, "ROW 199")
    assert (result.report.calls, result.report.ledger_hits) == (80, 120)


def test_a_ledger_file_answers_the_next_connection(tmp_path: Path) -> None:
    for expected in (200, 0):
        backend = Echo()
        with connect(backend, ledger=tmp_path / "answers.sqlite") as con:
            con.register("t", TABLE)
            result = con.sql(QUERY)
        assert backend.asked == expected
        assert result.fetchall()[7] == (7, "ROW 7")
        # what was sent is counted, what was known is not
        assert result.report.prompt_tokens == 10 * expected


def test_a_known_answer_is_found_whatever_order_the_fields_were_sent_in() -> None:
    backend = Echo()
    with connect(backend) as con:
        con.register("t", TABLE)
        con.sql("SELECT LLM('up', id, text) FROM t", order="original")
        con.sql("SELECT LLM('up', id, text) FROM t WHERE id < 50", order="ggr")
    assert backend.asked == 200


def test_sampled_answers_are_not_kept_unless_they_are_seeded() -> None:
    backend = Echo()
    with connect(backend) as con:
        con.register("t", TABLE)
        both: list[dict[str, Any]] = [{"temperature": 1.0}, {"temperature": 1.0, "seed": 7}]
        for settings in both:
            for _ in range(2):
                con.sql("SELECT LLM('up', text) FROM t", **settings)
    assert backend.asked == 200 * 3


def test_without_a_ledger_nothing_is_remembered() -> None:
    backend = Echo()
    with connect(backend, ledger=None) as con:
        con.register("t", TABLE)
        con.sql(QUERY)
        con.sql(QUERY)
    assert backend.asked == 400


def test_progress_counts_up_to_all_distinct_inputs_of_each_stage() -> None:
    seen = []
    with connect(Echo()) as con:
        con.register("t", TABLE)
        con.sql(
            "SELECT LLM('up', text) FROM t WHERE LLM('up', id, text) != ''",
            progress=lambda *step: seen.append(step),
        )
    assert seen[:2] == [("filter 1", 0, 200), ("filter 1", 1, 200)]
    assert seen[200:202] == [("filter 1", 200, 200), ("projection 1", 0, 200)]


def test_an_error_in_the_progress_callback_cancels_the_rest_at_once() -> None:
    backend = Echo()

    def give_up(stage: str, done: int, total: int) -> None:
        if done:
            raise RuntimeError("no more")

    with connect(backend) as con:
        con.register("t", TABLE)
        with pytest.raises(RuntimeError, match="no more"):
            con.sql(QUERY, progress=give_up)
        assert (backend.asked, backend.cancelled) == (1, True)


def test_the_report_counts_tokens_and_seconds_by_stage() -> None:
    ticks = iter(range(1000))
    with connect(Echo(), clock=lambda: float(next(ticks))) as con:
        con.register("t", TABLE)
        report = con.sql("SELECT LLM('up', text) FROM t WHERE LLM('x', text) > 'ROW 5'").report
    assert [stage.name for stage in report.stages] == ["filter 1", "projection 1"]
    first = report.stages[0]
    assert (first.rows, first.calls, first.prompt_tokens, first.cached_tokens) == (
        200, 200, 2000, 800,
    )  # fmt: skip
    assert first.expression == "llm('x', text)"
    assert (report.hit_rate, first.seconds > 0, report.seconds > first.seconds) == (0.4, True, True)
    assert report.to_dict()["stages"][0]["hit_rate"] == 0.4
    assert "filter 1" in str(report)


def test_a_result_reads_as_pandas_polars_arrow_and_tuples() -> None:
    with connect(Echo()) as con:
        con.register("t", {"id": [1, 2], "text": ["a", None]})
        result = con.sql("SELECT id, LLM('up', text), id FROM t ORDER BY id")
    assert result.columns == ["id", "llm('up', text)", "id"]
    assert result.fetchall() == [(1, "A", 1), (2, None, 2)]
    assert list(result.df().columns) == result.columns
    assert isinstance(result.df(), pd.DataFrame)
    assert result.df().iloc[:, 1].isna().tolist() == [False, True]
    assert result.pl().columns == ["id", "llm('up', text)", "id_1"]
    assert result.arrow().num_rows == len(result) == 2


def test_a_result_shows_its_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with connect(Echo()) as con:
        con.register("t", TABLE | {"n": [None] * 200})
        shown = repr(con.sql("SELECT id, 'a\nb' AS two, n, repeat('x', 99) AS long FROM t"))
    assert shown.split("\n")[2] == rf"0  | a\nb | NULL | {'x' * 58}..."
    assert shown.endswith("[200 rows, first 10 shown]")


def test_a_statement_without_rows_has_an_empty_result() -> None:
    with connect(Echo()) as con:
        result = con.sql("SET threads = 2")
        assert (len(result), result.fetchall()) == (0, [])
        assert "0 rows" in repr(result)


def test_a_backend_is_closed_by_whoever_made_it() -> None:
    backend = Echo()
    with connect(backend):
        pass
    assert not backend.closed


def test_a_wrong_setting_of_a_query_is_a_config_error() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"order": "gdr"}, "Did you mean 'ggr'"),
        ({"on_error": "ignore"}, "Known: null, raise"),
        ({"max_token": 3}, "Did you mean 'max_tokens'"),
        ({"max_tokens": 0}, "must be at least 1"),
        ({"logprobs": 3}, "'logprobs' of a query is not known"),
        ({"max_tokens": "3"}, "must be a number"),
        ({"labels": "abc"}, "list of strings"),
        ({"labels": []}, "labels is empty"),
        ({"labels": [""]}, "A label is an empty string"),
        ({"labels": ["\ud800", "No"]}, "not valid Unicode"),
        ({"stop": [1]}, "list of strings"),
        ({"allowed": ["a"]}, "labels"),
        ({"budget": "5USD"}, r"budget is a setting of rq.connect"),
        ({"model": "demo"}, r"model := 'NAME'"),
    ]
    for settings, message in cases:
        with connect(Echo()) as con, pytest.raises(ConfigError, match=message):
            con.sql("SELECT LLM('?')", **settings)
    with pytest.raises(ConfigError, match="was given mdel, and no model"):
        connect(mdel="demo")


def test_errors_of_the_query_itself_pass_through() -> None:
    with connect(Echo()) as con, pytest.raises(QueryError):
        con.sql("SELECT LLM('x', y)")


@pytest.mark.parametrize(
    "model",
    ["openai:gpt-4o-mini", pytest.param("random:layers=1,hidden=64", marks=pytest.mark.long)],
)
def test_closing_twice_does_nothing_more(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with connect(model) as con:
        con.close()
    con.close()


def test_a_connection_may_be_used_from_another_thread() -> None:
    with connect(Echo()) as con:
        con.register("t", TABLE)
        results = []
        query = "SELECT LLM('up', text) FROM t LIMIT 1"
        thread = Thread(target=lambda: results.append(con.sql(query).fetchall()))
        thread.start()
        thread.join()
    assert len(results[0]) == 1


def test_what_is_no_model_is_refused() -> None:
    cases: list[Any] = [None, 3]
    for model in cases:
        with pytest.raises(ConfigError, match="Give a model name"):
            connect(model)


def test_a_duckdb_connection_is_used_as_it_is_and_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as own:
        own.execute("CREATE TEMP TABLE passing AS SELECT 1 AS id, 'a' AS text")
        own.execute("CREATE VIEW seen AS SELECT 2 AS id, 'b' AS text")
        own.register("given", pd.DataFrame({"id": [3], "text": ["c"]}))
        own.execute("SET threads = 1")
        with connect(Echo(), database=own) as con:
            query = "SELECT LLM('up', text) FROM {} t"
            for table, answer in (("passing", "A"), ("seen", "B"), ("given", "C")):
                assert con.sql(query.format(table)).fetchall() == [(answer,)]
            con.sql("CREATE TABLE kept AS SELECT LLM('up', text) AS up FROM passing")
            con.register("mine", {"text": ["d"]})
            assert own.execute("SELECT up FROM kept, mine").fetchall() == [("A",)]
        assert own.execute("SELECT up FROM kept").fetchall() == [("A",)]
        assert own.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
        assert not [name for (name,) in own.execute("SHOW TABLES").fetchall() if "_rq_" in name]
    assert list(tmp_path.iterdir()) == []


def test_a_duckdb_connection_looks_into_python_again_after_each_query() -> None:
    frame = pd.DataFrame({"text": ["a"]})
    with duckdb.connect() as own, connect(Echo(), database=own) as con:
        for query in ("SELECT 1", "SELECT LLM('up', 1)", "SELECT nope"):
            with contextlib.suppress(QueryError):
                con.sql(query)
            assert own.sql("SELECT text FROM frame").fetchall() == [("a",)]
        assert con.sql("SELECT LLM('up', text) FROM frame").fetchall() == [("A",)]
        assert own.sql("SELECT text FROM frame").fetchall() == [("a",)]
        own.execute("SET python_enable_replacements = false")
        con.sql("SELECT 1")
        with pytest.raises(duckdb.Error, match="frame"):
            own.sql("SELECT text FROM frame")
    assert len(frame)


def test_a_duckdb_connection_that_is_closed_says_so() -> None:
    own = duckdb.connect()
    con = connect(Echo(), database=own)
    own.close()
    with pytest.raises(QueryError, match="closed"):
        con.sql("SELECT 1")
    con.close()


def test_what_is_no_database_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[Any] = [duckdb, 3, None, b"x.duckdb"]
    for database in cases:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError, match="Give the path of a DuckDB file"):
            connect(Echo(), database=database)
        assert list(tmp_path.iterdir()) == []


def test_the_file_of_a_schema_is_not_a_table() -> None:
    with (
        connect(Echo()) as con,
        pytest.raises(MarkupError, match=r"con.register\(rq.Schema.load\('wine.xml'\)\)"),
    ):
        con.register("wine.xml")  # type: ignore[call-overload]
