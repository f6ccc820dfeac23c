"""Files and batches, with OpenAI's client."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pyarrow.parquet
import pytest

import relquery as rq
from relquery.prices.price import Price
from relquery.prices.table import PRICES
from tests.serve.batches.conftest import (
    REVIEW,
    Run,
    begun,
    ended,
    line,
    results,
    uploaded,
)


def test_each_request_is_answered_as_by_itself(client: openai.OpenAI, run: Run) -> None:
    """Lines may have samplings of their own, and several choices."""
    samplings = enumerate([(0, 1), (2, 2), (0, 1), (1.5, 3), (2, 1)])
    lines = [line(at, temperature=t, seed=at, n=n, max_tokens=20) for at, (t, n) in samplings]
    batch: Any = run(lines)
    assert (batch.status, batch.error_file_id) == ("completed", None)
    assert batch.request_counts.model_dump() == {"total": 5, "completed": 5, "failed": 0}
    found = results(client, batch.output_file_id)
    for each in lines:
        alone: Any = client.chat.completions.create(**each["body"])
        choices = found[each["custom_id"]]["body"]["choices"]
        texts = [choice["message"]["content"] for choice in choices]
        assert texts == [choice.message.content for choice in alone.choices]


def test_completions_and_responses_can_be_asked_too(client: openai.OpenAI, run: Run) -> None:
    body = {"model": "demo", "prompt": ["The film", "Anna"], "temperature": 0}
    plain = run([line(0, "/v1/completions") | {"body": body}], "/v1/completions")
    choices = results(client, plain.output_file_id)["row-0"]["body"]["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    body = {"model": "demo", "input": REVIEW, "temperature": 0}
    answered = run([line(0, "/v1/responses") | {"body": body}], "/v1/responses")
    (message,) = results(client, answered.output_file_id)["row-0"]["body"]["output"]
    assert message["content"][0]["text"] == "Yes"


def test_a_request_that_fails_is_in_the_error_file(client: openai.OpenAI, run: Run) -> None:
    """The others are answered, also where the engine cannot follow a schema."""
    schema = {"name": "x", "schema": {"type": "object", "not": {}}}
    wrong = [
        line(1, tools=[{"type": "web_search"}]),
        line(2, response_format={"type": "json_schema", "json_schema": schema}),
        line(3, messages=[{"role": "user", "content": "word " * 5000}]),
        line(4, stream=True),
    ]
    batch = run([line(0), *wrong, line(5)])
    assert batch.status == "completed"
    assert set(results(client, batch.output_file_id)) == {"row-0", "row-5"}
    found = results(client, batch.error_file_id)
    assert [(name, found[name]["status_code"]) for name in sorted(found)] == [
        (f"row-{at}", 400) for at in range(1, 5)
    ]
    errors = {name: each["body"]["error"] for name, each in found.items()}
    assert [errors[name]["param"] for name in ("row-1", "row-4")] == ["tools", "stream"]
    assert 'Unimplemented keys: ["not"]' in errors["row-2"]["message"]
    assert errors["row-3"]["code"] == "context_length_exceeded"


def test_lines_that_are_no_requests_fail_the_batch(run: Run) -> None:
    wrong: list[tuple[Any, str, str | None]] = [
        ("{", "invalid_json_line", None),
        (line(0), "duplicate_custom_id", "custom_id"),
        (line(2, model="gpt-4o"), "model_not_found", "body.model"),
        (line(3, "/v1/completions"), "mismatched_endpoint", "url"),
        ({"custom_id": "x"}, "missing_required_parameter", "method"),
        (line(4) | {"method": "GET"}, "invalid_value", "method"),
        (line(5) | {"priority": 1}, "unknown_parameter", "priority"),
        (json.dumps(line(6, temperature=float("nan"))), "invalid_json_line", None),
    ]
    batch: Any = run([line(0), *(each for each, _, _ in wrong)])
    assert batch.status == "failed"
    assert [(each.line, each.code, each.param) for each in batch.errors.data] == [
        (at, code, param) for at, (_, code, param) in enumerate(wrong, 2)
    ]
    empty: Any = run([""])
    assert [each.code for each in empty.errors.data] == ["empty_file"]


def test_a_cancelled_batch_keeps_the_answers_that_it_has(client: openai.OpenAI, run: Run) -> None:
    lines = [line(at, temperature=2, seed=at, max_tokens=500, n=4) for at in range(400)]
    batch: Any = begun(client, uploaded(client, lines), metadata={"night": "1"})
    cancelled = client.batches.cancel(batch.id)
    assert cancelled.metadata == {"night": "1"}
    assert cancelled.status in ("cancelling", "cancelled")
    batch = ended(client, batch)
    assert (batch.status, batch.request_counts.completed < 400) == ("cancelled", True)
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)
    assert run([line(0)]).status == "completed"


def test_batches_are_listed_by_pages_the_latest_first(client: openai.OpenAI, run: Run) -> None:
    mine = [run([line(0)]).id for _ in range(3)]
    page = client.batches.list(limit=2)
    assert [batch.id for batch in page.data] == [mine[2], mine[1]]
    assert page.has_more
    assert page.get_next_page().data[0].id == mine[0]


def test_what_does_not_exist_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("batch_1")
    with pytest.raises(openai.NotFoundError):
        begun(client, "../../etc/passwd")
    with pytest.raises(openai.BadRequestError) as caught:
        begun(client, uploaded(client, [line(0)]), "/v1/embeddings")
    assert caught.value.param == "endpoint"


CONTENT = b'{"a": 1}\n' * 1000


def test_a_file_comes_back_whatever_its_name(client: openai.OpenAI) -> None:
    name = "../../../x.jsonl"
    file = client.files.create(file=(name, CONTENT), purpose="batch")
    assert (file.filename, file.bytes, file.purpose) == (name, len(CONTENT), "batch")
    assert file.id.startswith("file-")
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).content == CONTENT
    for wrong in ("..%2F..%2Fx", "file-1", file.id + "%00"):
        with pytest.raises(openai.NotFoundError):
            client.files.content(wrong)


def test_files_are_listed_until_they_are_deleted(client: openai.OpenAI) -> None:
    first, second = (
        client.files.create(file=("x.jsonl", CONTENT), purpose="batch").id for _ in range(2)
    )
    listed = [file.id for file in client.files.list(limit=1)]  # page by page
    assert listed.index(second) < listed.index(first)  # a batch that ends may add others
    assert len(client.files.list(limit=1).data) == 1
    assert client.files.delete(first).deleted
    assert first not in [file.id for file in client.files.list()]
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(first)


def test_other_purposes_and_fields_are_refused(client: openai.OpenAI) -> None:
    colour: dict[str, Any] = {"purpose": "batch", "extra_body": {"colour": "red"}}
    for more, param in (({"purpose": "vision"}, "purpose"), (colour, "colour")):
        with pytest.raises(openai.BadRequestError) as caught:
            client.files.create(file=("x.jsonl", CONTENT), **more)
        assert caught.value.param == param


MARKED = replace(PRICES["gpt-6-luna"], name="demo", minimum=16)
ANSWER = {"name": "answer", "schema": {"type": "string", "enum": ["Yes", "No"]}}


@pytest.mark.parametrize(("waves", "price"), [(1, MARKED), (3, None)])
def test_each_row_gets_its_answer(
    client: openai.OpenAI, run: Run, tmp_path: Path, waves: int, price: Price | None
) -> None:
    """With marked prefixes, too; each wave is sent when the one before it is answered."""
    reviews = pyarrow.parquet.read_table(rq.demo_table("movies")).slice(0, 30)
    template = rq.Template("Is the review positive?\n{fields}\n", system="You read reviews. " * 60)
    order = rq.reorder(reviews, prefix=template.prefix)
    batch = order.write_batch(
        tmp_path / "batch.jsonl",
        template,
        form="openai",
        model="demo",
        max_tokens=100,
        price=price,
        waves=waves,
        temperature=0,
        response_format={"type": "json_schema", "json_schema": ANSWER},
    )
    answered = []
    for path in batch.paths:
        done = run(path.read_text().splitlines())
        assert done.status == "completed"
        for kind in (done.output_file_id, done.error_file_id):
            if kind is not None:
                answered.append(tmp_path / f"{kind}.jsonl")
                answered[-1].write_bytes(client.files.content(kind).content)
    answers = order.read_answers(answered)
    assert set(answers.values.to_pylist()) <= {'"Yes"', '"No"'}
    assert len(answers.failed) == 0, answers
    assert ("prompt_cache_breakpoint" in batch.paths[0].read_text()) is (price is not None)
    assert (len(batch.waves) > 1) is (waves > 1)
