"""Statements over HTTP give what they give in this process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pytest

from relquery.connection import Connection
from tests.cases import cases

QUERY = """
SELECT movietitle, LLM('Summarize the review in one sentence.', movies.*) AS summary
FROM movies
WHERE year > 2015 AND AI_FILTER('Is the review positive? Answer Yes or No.', reviewcontent)
LIMIT 3"""


def ask(client: httpx.Client, query: str, **more: Any) -> Any:
    answer = client.post("/v1/sql", json={"query": query, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def error(client: httpx.Client, status: int, **body: Any) -> Any:
    answer = client.post("/v1/sql", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def test_rows_and_report_are_as_in_process(client: httpx.Client, local: Connection) -> None:
    expected, found = local.sql(QUERY), ask(client, QUERY)
    assert [tuple(row) for row in found["rows"]] == expected.fetchall()
    names = ("movietitle", "summary")
    assert found["columns"] == [{"name": name, "type": "VARCHAR"} for name in names]
    stages = [(stage["name"], stage["rows"]) for stage in found["report"]["stages"]]
    assert stages == [(stage.name, stage.rows) for stage in expected.report.stages]
    assert found["errors"] == []


def test_a_call_may_name_the_model_of_the_server_and_no_other(client: httpx.Client) -> None:
    query = "SELECT LLM('Nice?', note, labels := ['Yes', 'No'], model := '{}') FROM notes"
    assert len(ask(client, query.format("demo"))["rows"]) == 3
    for path in ("/v1/sql", "/v1/sql/explain"):
        refused = client.post(path, json={"query": query.format("openai:gpt-5")})
        assert refused.status_code == 400
        assert "offers 'demo' here, and not 'openai:gpt-5'" in refused.json()["error"]["message"]


def test_a_stream_tells_progress_then_columns_rows_report_and_errors(client: httpx.Client) -> None:
    def streamed(query: str) -> tuple[str, list[Any]]:
        answer = client.post("/v1/sql", json={"query": query, "stream": True})
        return answer.headers["content-type"], list(map(json.loads, answer.text.splitlines()))

    query = "SELECT id, AI_FILTER('Is {note} nice?') FROM notes, range(700) ORDER BY id"
    kind, lines = streamed(query)
    assert (kind, lines[0]["type"]) == ("application/x-ndjson", "progress")
    told = [line for line in lines if line["type"] == "progress"]
    assert (told[-1]["answered"], told[-1]["total"]) == (2, 2)
    rest = [line["type"] for line in lines if line["type"] != "progress"]
    assert rest == ["columns", "rows", "rows", "rows", "report", "errors"]
    assert sum(len(line["rows"]) for line in lines if line["type"] == "rows") == 2_100
    _, (line,) = streamed("SELECT nothing FROM notes")  # an error in place of the rest
    assert line["type"] == "error"
    assert "nothing" in line["error"]["message"]


def test_arrow_has_the_same_rows_and_the_report(client: httpx.Client) -> None:
    query = "SELECT id, note, 1.5::DECIMAL(3,1) AS d FROM notes ORDER BY id"
    answer = client.post("/v1/sql", json={"query": query, "format": "arrow"})
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.column("note").to_pylist() == ["A boat.", "A lake.", "A boat."]
    assert str(table.schema.field("d").type) == "decimal128(3, 1)"
    assert json.loads(table.schema.metadata[b"relquery.report"])["calls"] == 0


def test_parameters_and_sampling_are_taken(client: httpx.Client) -> None:
    query = "SELECT id, LLM($ask, note) AS a FROM notes WHERE id < $n ORDER BY id"
    given: Any = {"params": {"ask": "Is it nice?", "n": 3}, "labels": ["Yes", "No"]}
    found = ask(client, query, **given, order="original")
    assert [row[0] for row in found["rows"]] == [1, 2]
    assert {row[1] for row in found["rows"]} <= {"Yes", "No"}
    assert found["report"]["stages"][0]["order"] == "original"


def test_row_errors_are_listed(client: httpx.Client) -> None:
    query = "SELECT LLM('Summarize the review in one sentence.', reviewcontent) FROM movies LIMIT 1"
    found = ask(client, query, max_tokens=1)
    assert found["rows"] == [[None]]
    told = found["errors"][0]
    assert (told["stage"], told["finish"]) == ("projection 1", "length")
    assert "cut off" in error(client, 400, query=query, max_tokens=1, on_error="raise")["message"]


def test_recorded_prompts_have_their_tokens(client: httpx.Client) -> None:
    query = "SELECT AI_FILTER('Is {movietitle} a comedy?') FROM movies WHERE year = 1996"
    found = ask(client, query, record=2, order="original")
    (stage,) = found["recording"]
    assert (stage["sent"], len(stage["prompts"])) == (3, 2)
    first = stage["prompts"][0]
    assert "comedy" in first["text"]
    assert first["decoded"] == 1
    assert first["reused"] + first["computed"] > 10


def test_a_statement_is_explained_without_asking(client: httpx.Client) -> None:
    query = "SELECT AI_FILTER('Is {note} a question?') FROM notes"
    explained = client.post("/v1/sql/explain", json={"query": query}).json()
    assert "1 LLM expression" in explained["text"]
    assert [(one["stage"], one["calls"]) for one in explained["stages"]] == [("projection 1", 2)]


def test_tables_are_listed_with_types_and_sizes(client: httpx.Client) -> None:
    listed = client.get("/v1/tables").json()["data"]
    tables = {f"{each['schema']}.{each['name']}": each for each in listed}
    assert set(tables) == {"main.movies", "main.notes", "main.orders", "shop.orders"}
    assert tables["main.notes"]["rows"] == 3
    assert tables["main.notes"]["columns"][0] == {"name": "id", "type": "BIGINT"}


@pytest.mark.parametrize(("body", "param"), cases(__file__))
def test_what_is_not_known_is_refused_by_name(client: httpx.Client, body: Any, param: str) -> None:
    assert error(client, 400, **body)["param"].startswith(param)


def test_statements_run_side_by_side_and_give_what_they_give_alone(client: httpx.Client) -> None:
    queries = [
        f"SELECT count(*) FROM movies WHERE year = {year} AND "
        "AI_FILTER('Is the review positive? Answer Yes or No.', reviewcontent)"
        for year in (1983, 2020, 1950, 1958)
    ]
    alone = [ask(client, query, order="original")["rows"] for query in queries]
    fresh = [query.replace("Is the", "Is  the") for query in queries]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda query: ask(client, query, order="original"), queries))
        others = list(threads.map(lambda query: ask(client, query, order="original"), fresh))
    assert [each["rows"] for each in together] == alone
    assert all(len(each["rows"]) == 1 and not each["errors"] for each in others)
