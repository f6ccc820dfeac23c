"""The providers' own clients read what the stand-in answers, and see what it refuses."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import openai
import pytest

from benchmarks.standin.provider import Provider
from benchmarks.standin.wires.asked import instance
from tests.benchmarks.standin.conftest import ASK, LONG, Connect, kept

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["good", "bad"]}},
    "required": ["answer"],
    "additionalProperties": False,
}


def test_a_completion_says_how_many_tokens_came_from_the_cache(connect: Connect) -> None:
    clients = connect(Provider())
    messages = [{"role": "system", "content": LONG}, *ASK]
    first, again = (clients.chat(messages=messages).usage for _ in range(2))
    assert first.prompt_tokens_details.cached_tokens == 0
    cached = again.prompt_tokens_details.cached_tokens
    assert cached >= 1024
    assert (cached - 1024) % 128 == 0
    assert first.total_tokens == first.prompt_tokens + first.completion_tokens


def test_a_stream_has_the_same_answer_and_usage(connect: Connect) -> None:
    clients = connect(Provider(answer=lambda sent: "A longer answer."))
    whole = clients.chat()
    parts = list(clients.chat(stream=True, stream_options={"include_usage": True}))
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == whole.choices[0].message.content == "A longer answer."
    assert parts[-1].usage == whole.usage


def test_newer_models_of_openai_write_at_breakpoints(connect: Connect) -> None:
    clients, explicit = connect(Provider()), {"mode": "explicit"}

    def ask(row: str) -> Any:
        start = {"type": "text", "text": LONG, "prompt_cache_breakpoint": explicit}
        messages = [{"role": "user", "content": [start, {"type": "text", "text": row}]}]
        extra = {"prompt_cache_options": explicit}
        return clients.chat("gpt-6-luna", messages=messages, extra_body=extra)

    first, again = (ask(row).usage.prompt_tokens_details for row in ("one", "two"))
    assert first.cache_write_tokens == again.cached_tokens != 0
    assert again.cache_write_tokens == first.cached_tokens == 0


def test_a_response_has_its_text_and_usage(connect: Connect) -> None:
    client = connect(Provider()).openai
    asked: Any = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}}
    made = client.responses.create(
        model="gpt-5.4-mini", instructions=LONG, input="Is it?", text=asked, prompt_cache_key="a"
    )
    assert json.loads(made.output_text)["answer"] in ("good", "bad")
    assert made.usage is not None
    assert made.usage.input_tokens > 1024
    again = client.responses.create(
        model="gpt-5.4-mini", instructions=LONG, input="Or not?", prompt_cache_key="a"
    )
    assert again.usage is not None
    assert again.usage.input_tokens_details.cached_tokens >= 1024


@pytest.mark.parametrize("ttl", ["5m", "1h"])
def test_a_message_writes_where_it_is_marked_and_the_next_one_reads(
    connect: Connect, ttl: str
) -> None:
    clients = connect(Provider())
    first, second = (clients.message(row, system=kept(ttl=ttl)).usage for row in ("one", "two"))
    made = first.cache_creation
    by_ttl = (made.ephemeral_5m_input_tokens, made.ephemeral_1h_input_tokens)
    assert max(by_ttl) == first.cache_creation_input_tokens == second.cache_read_input_tokens
    assert min(by_ttl) == second.cache_creation_input_tokens == 0
    assert by_ttl.index(max(by_ttl)) == ("5m", "1h").index(ttl)


def test_a_thought_comes_before_the_text(connect: Connect) -> None:
    message = connect(Provider()).message()
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.stop_reason == "end_turn"


def test_a_message_is_streamed(connect: Connect) -> None:
    client = connect(Provider(answer=lambda sent: "A longer answer.")).anthropic
    with client.messages.stream(model="claude-sonnet-5", max_tokens=20, messages=ASK) as stream:
        assert "".join(stream.text_stream) == "A longer answer."
        assert stream.get_final_message().usage.output_tokens > 1


def test_a_message_follows_a_schema(connect: Connect) -> None:
    form = {"format": {"type": "json_schema", "schema": SCHEMA}}
    text = connect(Provider()).message(model="claude-opus-5", output_config=form).content[-1]
    assert text.type == "text"
    assert json.loads(text.text)["answer"] in ("good", "bad")


def test_an_answer_that_is_too_long_is_cut(connect: Connect) -> None:
    clients = connect(Provider(answer=lambda sent: "one two three"))
    (choice,) = clients.chat(max_tokens=2).choices
    assert (choice.finish_reason, choice.message.content) == ("length", "one two")
    message = clients.message(model="claude-haiku-4.5", max_tokens=2)
    assert message.stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("model", "fields", "says"),
    [
        ("gpt-4o-mini", {"top_k": 3}, "Unknown parameter: 'top_k'"),
        ("gpt-4o-mini", {"prompt_cache_options": {"mode": "explicit"}}, "not supported with this"),
        ("gpt-5.4-mini", {"max_tokens": 3}, "Use 'max_completion_tokens' instead"),
        ("gpt-5.4-mini", {"temperature": 0}, "does not support 0 with this model"),
        ("gpt-4o-mini", {"stop": list("abcde")}, "Invalid value for 'stop"),
        ("nobody", {}, "does not exist"),
    ],
)
def test_openai_refuses_what_a_model_does_not_take(
    connect: Connect, model: str, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(openai.APIStatusError, match=says):
        connect(Provider()).chat(model, extra_body=fields)


def marked(count: int, *last: str) -> list[Any]:
    ttls = ["5m"] * count + list(last)
    parts = [
        {"type": "text", "text": f"part {at}", "cache_control": {"type": "ephemeral", "ttl": ttl}}
        for at, ttl in enumerate(ttls)
    ]
    return [{"role": "user", "content": parts}]


@pytest.mark.parametrize(
    ("messages", "fields", "says"),
    [
        (ASK, {"logprobs": True}, "logprobs: Extra inputs are not permitted"),
        (ASK, {"temperature": 0}, "`temperature` is deprecated for this model"),
        (marked(5), {}, "A maximum of 4 blocks with cache_control may be provided. Found 5"),
        (marked(4), {"cache_control": {"type": "ephemeral"}}, None),
        (marked(1, "1h"), {}, "must not come after"),
        ([{"role": "user", "content": " "}], {}, "non-whitespace"),
        ([{"role": "system", "content": "a"}], {}, "messages.0.role"),
    ],
)
def test_anthropic_refuses_what_it_does_not_take(
    connect: Connect, messages: list[Any], fields: dict[str, Any], says: str | None
) -> None:
    clients = connect(Provider())
    if says is None:
        clients.message(messages=messages, extra_body=fields)
        return
    with pytest.raises(anthropic.BadRequestError, match=says):
        clients.message(messages=messages, extra_body=fields)


def test_requests_without_a_key_are_refused(connect: Connect) -> None:
    url = connect(Provider()).url
    reply = httpx.post(f"{url}/v1/chat/completions", json={})
    assert reply.status_code == 401
    assert reply.json()["error"]["code"] == "invalid_api_key"
    reply = httpx.post(f"{url}/v1/messages", json={}, headers={"x-api-key": "k"})
    assert reply.json()["error"]["message"] == "anthropic-version: header is required"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [True, True]),
        ({"type": ["null", "string"]}, None),
        ({"anyOf": [{"const": 3}, {"type": "null"}]}, 3),
        ({"type": "integer", "minimum": 4}, 4),
        ({"type": "number"}, 0.0),
        ({}, "No"),
    ],
)
def test_instances_follow_their_schema(schema: dict[str, Any], value: object) -> None:
    assert instance(schema, 0) == value
