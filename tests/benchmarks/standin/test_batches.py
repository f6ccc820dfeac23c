"""Batches through the providers' own clients."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from benchmarks.standin.errors import Faults
from benchmarks.standin.provider import Provider
from tests.benchmarks.standin.conftest import Clock, Connect, kept


def line(name: str, **body: Any) -> dict[str, Any]:
    asked = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": name}], **body}
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": asked}


def submit(client: openai.OpenAI, *lines: dict[str, Any]) -> openai.types.Batch:
    data = "".join(f"{json.dumps(each)}\n" for each in lines).encode()
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    assert client.files.content(file.id).read() == data
    return client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"relquery": "query 7"},
    )


def test_a_batch_of_openai_ends_with_a_file_of_answers_and_one_of_errors(connect: Connect) -> None:
    clock = Clock()
    client = connect(Provider(clock=clock)).openai
    made = submit(client, line("one"), line("two", top_k=3), line("three"))
    assert made.status == "in_progress"
    clock.now += 60
    ended = client.batches.retrieve(made.id)
    assert ended.status == "completed"
    assert ended.metadata == {"relquery": "query 7"}
    assert ended.request_counts is not None
    assert (ended.request_counts.completed, ended.request_counts.failed) == (2, 1)
    assert ended.output_file_id is not None
    assert ended.error_file_id is not None
    good = client.files.content(ended.output_file_id).text.splitlines()
    read = {each["custom_id"]: each["response"]["body"] for each in map(json.loads, good)}
    assert set(read) == {"one", "three"}
    for body in read.values():
        openai.types.chat.ChatCompletion.model_validate(body, strict=True)
    (bad,) = client.files.content(ended.error_file_id).text.splitlines()
    assert json.loads(bad)["response"]["status_code"] == 400


def test_batches_are_found_again_the_newest_first(connect: Connect) -> None:
    client = connect(Provider()).openai
    made = [submit(client, line(f"row {number}")).id for number in range(5)]
    assert [batch.id for batch in client.batches.list(limit=2)] == made[::-1]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([line("one"), line("one")], "must be unique"),
        ([{**line("one"), "url": "/v1/responses"}], "does not match"),
        ([{**line("one"), "method": "GET"}], "method"),
        ([], "empty"),
    ],
)
def test_a_batch_whose_file_is_wrong_fails(
    connect: Connect, lines: list[dict[str, Any]], says: str
) -> None:
    made = submit(connect(Provider()).openai, *lines)
    assert made.status == "failed"
    assert made.errors is not None
    assert made.errors.data is not None
    assert says in str(made.errors.data[0].message)


def requests(*names: str) -> Any:
    params = {"model": "claude-sonnet-5", "max_tokens": 5, "system": kept()}
    return [
        {
            "custom_id": name,
            "params": {**params, "messages": [{"role": "user", "content": name}]},
        }
        for name in names
    ]


def read_and_written(client: anthropic.Anthropic, name: str) -> list[tuple[int, int]]:
    found = []
    for each in client.messages.batches.results(name):
        assert each.result.type == "succeeded"
        usage = each.result.message.usage
        read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        found.append((read or 0, written or 0))
    return found


def test_requests_of_a_batch_read_what_the_batch_before_has_written(connect: Connect) -> None:
    clock = Clock()
    client = connect(Provider(clock=clock)).anthropic
    first = client.messages.batches.create(requests=requests("one", "two"))
    assert first.processing_status == "in_progress"
    clock.now += 60
    ended = client.messages.batches.retrieve(first.id)
    assert (ended.processing_status, ended.request_counts.succeeded) == ("ended", 2)
    assert [read for read, _ in read_and_written(client, first.id)] == [0, 0]
    second = client.messages.batches.create(requests=requests("three"))
    clock.now += 60
    ((read, written),) = read_and_written(client, second.id)
    assert read > 1024
    assert written == 0


def test_batches_cost_half(connect: Connect) -> None:
    clock = Clock()
    live, batched = Provider(), Provider(clock=clock)
    (one,) = requests("one")
    connect(live).anthropic.messages.create(**one["params"])
    client = connect(batched).anthropic
    made = client.messages.batches.create(requests=[one])
    clock.now += 60
    client.messages.batches.retrieve(made.id)
    assert batched.account.totals.usd == pytest.approx(live.account.totals.usd / 2)


def test_a_cancelled_batch_answers_and_bills_nothing(connect: Connect) -> None:
    standin = Provider(clock=Clock())
    clients = connect(standin)
    made = clients.anthropic.messages.batches.create(requests=requests("one"))
    clients.anthropic.messages.batches.cancel(made.id)
    (result,) = clients.anthropic.messages.batches.results(made.id)
    assert result.result.type == "canceled"
    other = submit(clients.openai, line("one"))
    assert clients.openai.batches.cancel(other.id).status == "cancelling"
    assert clients.openai.batches.retrieve(other.id).status == "cancelled"
    assert standin.account.totals.requests == 0


def test_requests_of_a_batch_fail_one_by_one(connect: Connect) -> None:
    clock = Clock()
    client = connect(Provider(clock=clock, faults=Faults("500", share=0.5))).anthropic
    names = [f"row{number}" for number in range(20)]
    made = client.messages.batches.create(requests=requests(*names))
    clock.now += 60
    counts = client.messages.batches.retrieve(made.id).request_counts
    assert counts.succeeded + counts.errored == 20
    assert 0 < counts.errored < 20


def test_anthropic_refuses_ids_that_come_twice(connect: Connect) -> None:
    client = connect(Provider()).anthropic
    with pytest.raises(anthropic.BadRequestError, match="unique"):
        client.messages.batches.create(requests=requests("one", "one"))


def test_results_are_there_once_a_batch_has_ended(connect: Connect) -> None:
    clients = connect(Provider(clock=Clock()))
    made = clients.anthropic.messages.batches.create(requests=requests("one"))
    assert clients.anthropic.messages.batches.retrieve(made.id).results_url is None
    with pytest.raises(anthropic.AnthropicError, match="results"):
        list(clients.anthropic.messages.batches.results(made.id))
