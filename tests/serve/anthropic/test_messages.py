"""Anthropic's SDK talks to the server: answers, streams, breakpoints, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases import cases
from tests.serve.conftest import Running, inside

RULES = "Say whether the review is good or bad, in one word. " * 10
QUESTION = "Extract the name: My name is Sara Miller and I live in Paris."
ASKED: Any = [{"role": "user", "content": QUESTION}]
"""The demo model answers with some names."""

GREEDY = {"temperature": 0}  # the SDK does not name it any more


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def ask(client: anthropic.Anthropic, **fields: Any) -> anthropic.types.Message:
    usual = {"model": "demo", "max_tokens": 8, "messages": ASKED}
    extra = {**GREEDY, **fields.pop("extra_body", {})}
    message: anthropic.types.Message
    message = client.messages.create(**{**usual, **fields}, extra_body=extra)
    return message


def streamed(client: anthropic.Anthropic, **fields: Any) -> tuple[list[Any], Any]:
    """(all events, the message)"""
    usual: dict[str, Any] = {"model": "demo", "max_tokens": 8, "messages": ASKED}
    with client.messages.stream(**usual | fields, extra_body=GREEDY) as stream:
        return list(stream), stream.get_final_message()


def kept(usage: Any) -> tuple[int, int]:
    """Tokens that were (written to, read from) the cache."""
    return usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0


def text_of(message: anthropic.types.Message) -> str:
    (block,) = message.content
    assert block.type == "text"
    return block.text


def turn(content: Any) -> Any:
    return [{"role": "user", "content": content}]


def counted(client: anthropic.Anthropic, messages: Any, **more: Any) -> int:
    return client.messages.count_tokens(model="demo", messages=messages, **more).input_tokens


def block(text: str, ttl: str = "") -> dict[str, Any]:
    control = {"cache_control": {"type": "ephemeral", "ttl": ttl}} if ttl else {}
    return {"type": "text", "text": text, **control}


def test_a_message_has_all_that_the_sdk_reads(client: anthropic.Anthropic) -> None:
    message = ask(client, max_tokens=3)
    assert message.id.startswith("msg_")
    assert (message.type, message.role, message.model) == ("message", "assistant", "demo")
    assert (message.stop_reason, message.stop_sequence) == ("max_tokens", None)
    assert text_of(message)
    assert message.usage.output_tokens == 3
    assert message.usage.input_tokens > 0
    assert kept(message.usage) == (0, 0)
    assert ask(client, max_tokens=200).stop_reason == "end_turn", "it ends by itself"


def test_blocks_and_messages_of_one_role_are_one_turn(client: anthropic.Anthropic) -> None:
    parts = [block("Extract the name: My"), block(" name is Sara Miller and I live in Paris.")]
    assert text_of(ask(client, messages=turn(parts))) == text_of(ask(client))
    apart = [*turn("Extract the name:"), *turn("My name is Sara.")]
    one = ask(client, messages=apart)
    other = ask(client, messages=turn("Extract the name:\nMy name is Sara."))
    assert text_of(one) == text_of(other)
    assert one.usage.input_tokens == other.usage.input_tokens


def test_the_stop_sequence_that_ended_an_answer_is_named(client: anthropic.Anthropic) -> None:
    whole = text_of(ask(client, max_tokens=20))
    stop = whole[1:3]
    message = ask(client, max_tokens=20, stop_sequences=["never said", stop, whole[1:]])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    assert text_of(message) == whole[: whole.index(stop)]


def test_a_stream_gives_the_events_and_the_message(client: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {"max_tokens": 12, "system": [block(RULES, "5m")]}
    whole = ask(client, **asked)
    events, message = streamed(client, **asked)
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "content_block_delta" in kinds
    assert text_of(message) == text_of(whole)
    assert (message.stop_reason, message.stop_sequence) == (whole.stop_reason, None)
    assert message.usage.output_tokens == whole.usage.output_tokens
    total = message.usage.input_tokens + sum(kept(message.usage))
    assert total == counted(client, ASKED, system=RULES)


def test_a_stream_begins_with_the_tokens_of_its_prompt(client: anthropic.Anthropic) -> None:
    asked_twice: Any = [block("At first. " * 30, "5m")]
    for system, repeated in ((RULES, False), (asked_twice, True)):
        for _ in range(1 + repeated):
            events, message = streamed(client, max_tokens=4, system=system)
            (start,) = [each.message.usage for each in events if each.type == "message_start"]
            assert start.input_tokens + sum(kept(start)) == counted(client, ASKED, system=system)
        last = message.usage
        assert start.input_tokens == last.input_tokens > 0
        assert kept(start)[1] == kept(last)[1]
        assert (kept(last)[1] > 0) == repeated


def test_a_last_message_of_the_assistant_is_continued(client: anthropic.Anthropic) -> None:
    text = text_of(ask(client, max_tokens=16)).rstrip()
    for cut in (text.rindex(" ") if " " in text else len(text) // 2, 0):
        begun = [*ASKED, {"role": "assistant", "content": text[:cut]}]
        assert text_of(ask(client, messages=begun, max_tokens=16)).startswith(text[cut:])


def test_an_answer_follows_a_schema(client: anthropic.Anthropic) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"good": {"type": "boolean"}}}
    schema |= {"required": ["good"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "schema": schema}}
    assert set(json.loads(text_of(ask(client, output_config=form, max_tokens=30)))) == {"good"}


def test_no_tokens_may_be_asked_to_fill_the_cache(client: anthropic.Anthropic) -> None:
    system = [block("Warm. " * 60, "5m")]
    warm = ask(client, system=system, max_tokens=0)
    assert (warm.content, warm.stop_reason, warm.usage.output_tokens) == ([], "max_tokens", 0)
    assert kept(warm.usage)[0] > 0
    assert kept(ask(client, system=system).usage)[1] > 0


def test_tokens_up_to_a_breakpoint_are_created_then_read(client: anthropic.Anthropic) -> None:
    def usage(question: str) -> Any:
        content = [block("A review. " * 30, "5m"), block(question)]
        system = [block("Hear: " + RULES, "1h")]
        return ask(client, system=system, messages=turn(content)).usage

    first, second = usage("Good?"), usage("Bad?")
    assert first.cache_creation.ephemeral_1h_input_tokens > 0
    assert first.cache_creation.ephemeral_5m_input_tokens > 0
    end = sum(kept(first))
    assert sum(kept(second)) == end
    assert kept(second)[0] < 16, "all whole blocks are read"
    assert second.cache_creation.ephemeral_1h_input_tokens == 0
    asked = turn("A review. " * 30 + "Good?")
    assert first.input_tokens + end == counted(client, asked, system=[block("Hear: " + RULES)])


def test_the_request_s_own_breakpoint_is_on_its_last_block(client: anthropic.Anthropic) -> None:
    usage = ask(client, cache_control={"type": "ephemeral"}, system="All is kept.").usage
    assert sum(kept(usage)) > 10 * usage.input_tokens  # what the template ends with is left


def test_breakpoints_change_no_answer(client: anthropic.Anthropic) -> None:
    for cut in (3, 7, 12, 20):
        content = [block(QUESTION[:cut], "5m"), block(QUESTION[cut:])]
        assert text_of(ask(client, messages=turn(content))) == text_of(ask(client))


@pytest.mark.parametrize(("fields", "named"), cases(__file__))
def test_what_is_refused_is_named(
    client: anthropic.Anthropic, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as raised:
        ask(client, **fields)
    body: Any = raised.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert named in body["error"]["message"]
    assert body["request_id"] == raised.value.request_id


def test_other_blocks_than_text_are_refused_by_name(client: anthropic.Anthropic) -> None:
    for kind in ("image", "thinking", "search_result"):
        content = [block("Look."), {"type": kind, "source": {"type": "text", "data": "x"}}]
        with pytest.raises(anthropic.BadRequestError, match=kind):
            ask(client, messages=turn(content))


def test_a_prompt_that_is_too_long_is_refused_but_counted(client: anthropic.Anthropic) -> None:
    long = turn("word " * 20_000)
    for asking in (ask, streamed):
        with pytest.raises(anthropic.APIStatusError, match="context"):
            asking(client, messages=long)
    assert counted(client, long) > 19_000


def test_max_tokens_is_needed(server: Running) -> None:
    answer = httpx.post(f"{server.url}/v1/messages", json={"model": "demo", "messages": ASKED})
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "type": "invalid_request_error",
        "message": "max_tokens: Field required",
    }


NAMES = st.sampled_from(["type", "text", "role", "content", "cache_control", "ttl"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "a", "text", "user"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TEXTS = st.text(max_size=8)
BLOCKS = st.builds(block, TEXTS, st.sampled_from(["", "5m", "1h"]))
ROLES = st.sampled_from(["user", "assistant", "system"])
CONTENTS = TEXTS | st.lists(BLOCKS, max_size=3) | JSON
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": CONTENTS}), max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=MESSAGES | JSON, system=TEXTS | st.lists(BLOCKS, max_size=2) | st.none())
def test_any_messages_are_read(
    server: Running, web: httpx.Client, messages: Any, system: Any
) -> None:
    body = {"model": "demo", "max_tokens": 1, "messages": messages}
    body |= {} if system is None else {"system": system}
    content = json.dumps(body).encode()
    answer = web.post(f"{server.url}/v1/messages", content=content)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.fixture(scope="module")
def web() -> Iterator[httpx.Client]:
    with httpx.Client(headers={"content-type": "application/json"}) as web:
        yield web


CACHE = 1024


def asked_usage(url: str, text: str, control: dict[str, str] | None) -> dict[str, int]:
    system = [{"type": "text", "text": text, "cache_control": control}]
    body = {"model": "demo", "max_tokens": 2, "system": system, "messages": turn("Fine.")}
    answer = httpx.post(f"{url}/v1/messages", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, int] = answer.json()["usage"]
    return found


def test_what_a_breakpoint_ends_survives_a_storm_of_other_prompts() -> None:
    control = {"type": "ephemeral"}
    options = {"cache_tokens": CACHE}
    with inside("simulated:step=0.0005", names=("demo",), options=options) as server:
        created = asked_usage(server.url, RULES, control)["cache_creation_input_tokens"]
        others = (asked_usage(server.url, f"{at} {RULES}", None) for at in range(16))
        sent = sum(usage["input_tokens"] for usage in others)
        later = asked_usage(server.url, RULES, control)
    assert sent > 2 * CACHE
    assert later["cache_read_input_tokens"] > created - 16
