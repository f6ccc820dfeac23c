"""A table and a template are answered as one relQuery."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import permutations
from typing import Any

import httpx
import pyarrow as pa
import pytest

import relquery as rq
from relquery.connection import Connection
from relquery.errors import TableError
from relquery.prompt import Role, Sampling, Span
from relquery.serve.api.tables import RelQueryBody, table_of
from tests.cases import cases

ROWS = [
    {"title": "A", "review": "A dull film with a weak plot."},
    {"title": "B", "review": "A great film, I would see it again."},
    {"title": "A", "review": "A dull film with a weak plot."},
    {"title": "C", "review": "A great film with a fine score."},
]
PROMPT = "Is the review positive? Answer Yes or No."
WHOLE: dict[str, Any] = {"rows": ROWS, "prompt": PROMPT, "labels": ["Yes", "No"]}


def stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def ask(client: httpx.Client, **body: Any) -> Any:
    answer = client.post("/v1/relqueries", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def expected(local: Connection) -> list[str | None]:
    """Answers of the same prompts in this process, by row."""
    table = pa.Table.from_pylist(ROWS)
    prompts = list(rq.reorder(table).prompts(PROMPT))
    asked = [(Span(each.text, Role.USER, begins=True),) for each in prompts]
    answers = dict(local.backend.answer(asked, Sampling(labels=("Yes", "No"))))
    found = {each.row: answers[at].text for at, each in enumerate(prompts)}
    return [found[row] for row in range(len(ROWS))]


def test_answers_are_by_row_and_equal_rows_one(client: httpx.Client, local: Connection) -> None:
    found = ask(client, **WHOLE)
    assert [each["row"] for each in found["answers"]] == [0, 1, 2, 3]
    assert [each["answer"] for each in found["answers"]] == expected(local)
    report = found["report"]
    assert (report["rows"], report["calls"], report["order"]) == (4, 3, "tree")


@pytest.mark.parametrize("as_", ["rows", "come"])
def test_a_stream_has_each_row_once_and_the_report(client: httpx.Client, as_: str) -> None:
    answer = client.post("/v1/relqueries", json=WHOLE | {"stream": True, "as": as_})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    rows = [line["row"] for line in lines[:-1]]
    assert (rows if as_ == "rows" else sorted(rows)) == [0, 1, 2, 3]
    assert lines[-1]["type"] == "report"
    assert lines[-1]["report"]["calls"] == 3
    assert lines[-1]["report"]["seconds"] > 0


def test_a_table_can_be_rows_columns_or_arrow(client: httpx.Client) -> None:
    table = pa.Table.from_pylist(ROWS)
    more: dict[str, Any] = {"prompt": PROMPT, "labels": ["Yes", "No"]}
    data, files = {"request": json.dumps(more)}, {"table": ("table.arrow", stream_of(table))}
    forms = [
        ask(client, **WHOLE),
        ask(client, columns=table.to_pydict(), **more),
        ask(client, arrow=b64encode(stream_of(table)).decode(), **more),
        client.post("/v1/relqueries", data=data, files=files).json(),
    ]
    answers = [[each["answer"] for each in form["answers"]] for form in forms]
    assert answers[1:] == answers[:1] * 3


def test_answers_can_be_a_table(client: httpx.Client) -> None:
    answer = client.post("/v1/relqueries", json=WHOLE | {"format": "arrow"})
    table = pa.ipc.open_stream(answer.content).read_all()
    whole = ask(client, **WHOLE)
    assert table.column("answer").to_pylist() == [each["answer"] for each in whole["answers"]]
    assert json.loads(table.schema.metadata[b"relquery.report"])["rows"] == 4


def test_a_template_says_where_the_fields_go_and_fields_which(client: httpx.Client) -> None:
    template = {"text": "{fields}Is it positive?", "system": "Be brief.", "field": "{value}"}
    one = ask(client, rows=ROWS, template=template, fields=["review"], labels=["Yes", "No"])
    assert one["report"]["calls"] == 3
    same = ask(client, rows=ROWS, template=template, fields=["title"], labels=["Yes", "No"])
    assert same["report"]["calls"] == 3
    assert one["report"]["prompt_tokens"] > same["report"]["prompt_tokens"]


def test_an_answer_that_is_cut_off_says_so(client: httpx.Client) -> None:
    (answer,) = ask(client, rows=[{"a": "x"}], prompt="Write.", max_tokens=1)["answers"]
    assert answer["finish_reason"] == "length"
    assert "cut off" in answer["error"]


@pytest.mark.parametrize(("change", "says"), cases(__file__))
def test_what_cannot_be_asked_is_refused(client: httpx.Client, change: Any, says: str) -> None:
    """change: of a body that can be asked, what is other; null takes a field away."""
    body = {"rows": ROWS, "prompt": "x"} | change
    asked = {name: value for name, value in body.items() if value is not None}
    answer = client.post("/v1/relqueries", json=asked)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


KINDS = {"true or false": True, "a number": 1, "text": "tea", "a list": [1], "an object": {"a": 1}}


@pytest.mark.parametrize("of", ["rows", "columns"])
def test_a_column_of_two_types_is_told_with_its_rows(of: str) -> None:
    for first, second in permutations(KINDS, 2):
        values = [None, KINDS[first], None, KINDS[first], KINDS[second]]
        given = {"rows": [{"id": 1, "a": each} for each in values], "columns": {"a": values}}[of]
        body = RelQueryBody.model_validate({of: given, "prompt": "Good?"})
        with pytest.raises(TableError) as caught:
            table_of(body, None)
        assert f"Column 'a' has {second} in row 4 and {first} in row 1" in str(caught.value)


def test_whole_and_broken_numbers_are_of_one_type_and_another_fault_names_the_column() -> None:
    body = RelQueryBody.model_validate({"columns": {"a": [1, 2.5, None]}, "prompt": "Good?"})
    assert table_of(body, None)["a"].to_pylist() == [1.0, 2.5, None]
    body = RelQueryBody.model_validate({"columns": {"a": [2**70]}, "prompt": "Good?"})
    with pytest.raises(TableError, match="cannot be read"):
        table_of(body, None)
