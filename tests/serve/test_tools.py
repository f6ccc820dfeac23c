"""Tools in the three APIs: what a network with random weights calls, and chats with results.

The SDKs of the providers read the answers; random weights make them hard to get right by chance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from relquery.serve.openai.fields import ChatMessage, prompt_of
from relquery.serve.streaming import ParsedAnswer
from relquery.tools import CallForm, Function, ToolCall, ToolResult, ToolUse
from tests.serve.conftest import Running, inside

MODEL = "random:layers=1,hidden=32,heads=2"
CITIES = ["Bonn", 'Ro"me}', "Genève\\"]
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": CITIES},
        "days": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["city"],
}
CHAT: Any = [{"role": "user", "content": "Weather?"}]
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now", "description": "The time."}},
]
FLAT: Any = [{"type": "function"} | each["function"] for each in TOOLS]
OWN: Any = [
    {"name": "weather", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
    {"name": "now", "description": "The time.", "input_schema": {"type": "object"}},
]
LONG = 1500


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with inside(MODEL) as found:
        yield found


def ask(client: openai.OpenAI, messages: Any = CHAT, **more: Any) -> Any:
    given = {"tools": TOOLS, "max_tokens": LONG, "seed": 5} | more
    return client.chat.completions.create(model=MODEL, messages=messages, **given)


def check(name: str, arguments: object) -> None:
    """Arguments follow the function's schema."""
    assert isinstance(arguments, dict)
    if name == "now":
        assert arguments == {}
        return
    assert name == "weather"
    assert arguments["city"] in CITIES
    assert set(arguments) <= {"city", "days"}


def test_a_chat_calls_functions_and_reads_what_they_return(client: openai.OpenAI) -> None:
    (choice,) = ask(client, tool_choice="required").choices
    calls = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert len({call.id for call in calls}) == len(calls) > 0
    for call in calls:
        check(call.function.name, json.loads(call.function.arguments))
    results = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in calls]
    said = choice.message.model_dump(exclude_none=True)
    further = ask(client, [*CHAT, said, *results], max_tokens=4)
    assert further.choices[0].finish_reason in ("stop", "length")
    assert further.usage.prompt_tokens > len("rain") * len(calls) + 50


def test_streamed_deltas_are_the_whole_calls(client: openai.OpenAI) -> None:
    (whole,) = ask(client, tool_choice="required").choices
    with client.chat.completions.stream(
        model=MODEL, messages=CHAT, tools=TOOLS, tool_choice="required", max_tokens=LONG, seed=5
    ) as stream:
        for _ in stream:
            pass
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"

    def shown(message: Any) -> list[tuple[str, str]]:
        return [(each.function.name, each.function.arguments) for each in message.tool_calls]

    assert shown(choice.message) == shown(whole.message)


def test_choices_call_each_their_own_and_a_named_function_alone(client: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "weather"}}
    found = ask(client, tool_choice=named, n=3)
    assert [len(choice.message.tool_calls) for choice in found.choices] == [1, 1, 1]
    assert {choice.message.tool_calls[0].function.name for choice in found.choices} == {"weather"}
    assert len({choice.message.tool_calls[0].id for choice in found.choices}) == 3
    single = ask(client, tool_choice="required", parallel_tool_calls=False)
    assert len(single.choices[0].message.tool_calls) == 1


def test_with_none_and_where_the_answer_is_cut_there_is_no_call(client: openai.OpenAI) -> None:
    (choice,) = ask(client, tool_choice="none", max_tokens=20).choices
    assert choice.message.tool_calls is None
    (cut,) = ask(client, tool_choice="required", max_tokens=60).choices
    assert cut.finish_reason == "length"
    for call in cut.message.tool_calls or ():
        assert call.function.name in ("weather", "now")


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([{"role": "tool", "content": "x"}], "tool_call_id"),
        ([{"role": "user", "content": None}], "give content"),
        ([{"role": "user", "content": "x", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}],
         "of the assistant"),
        ([{"role": "assistant", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "now", "arguments": "[1]"}}]}],
         "JSON text of an object"),
    ],
)  # fmt: skip
def test_messages_that_do_not_fit_are_refused(
    client: openai.OpenAI, messages: Any, named: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=named):
        ask(client, messages)


def test_schemas_that_cannot_be_followed_are_refused_also_for_a_stream(
    client: openai.OpenAI,
) -> None:
    wrong = {"name": "f", "parameters": {"type": "object", "properties": {}, "not": {}}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match=r'Unimplemented keys: \["not"\]'):
            ask(client, tools=[{"type": "function", "function": wrong}], stream=stream)
    with pytest.raises(openai.BadRequestError, match="response_format"):
        ask(client, response_format={"type": "json_object"})


def test_a_response_has_calls_as_items_and_takes_them_back(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "tools": FLAT, "max_output_tokens": LONG}
    found = client.responses.create(input="Weather?", tool_choice="required", **asked)
    assert found.status == "completed"
    calls = [item for item in found.output if item.type == "function_call"]
    assert len(calls) == len(found.output) > 0
    for call in calls:
        check(call.name, json.loads(call.arguments))
    outputs: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        for call in calls
    ]
    given: Any = [*CHAT, *[item.model_dump(exclude_none=True) for item in calls], *outputs]
    asked |= {"max_output_tokens": 4}
    assert client.responses.create(input=given, **asked).usage is not None


def test_a_streamed_response_adds_up(client: openai.OpenAI) -> None:
    parts: dict[int, str] = {}
    kinds: list[str] = []
    with client.responses.stream(
        model=MODEL, input="Weather?", tools=FLAT, tool_choice="required", max_output_tokens=LONG
    ) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "response.function_call_arguments.delta":
                parts[event.output_index] = parts.get(event.output_index, "") + event.delta
        final = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds.count("response.output_item.done") == len(final.output) == len(parts)
    for at, item in enumerate(final.output):
        assert item.type == "function_call"
        assert parts[at] == item.arguments
        check(item.name, json.loads(item.arguments))


def test_a_message_has_tool_use_blocks_and_takes_results(theirs: anthropic.Anthropic) -> None:
    asked: Any = {"model": MODEL, "tools": OWN}
    found = theirs.messages.create(
        max_tokens=LONG, messages=CHAT, tool_choice={"type": "any"}, **asked
    )
    assert found.stop_reason == "tool_use"
    results: Any = []
    for block in found.content:
        assert block.type == "tool_use"
        check(block.name, block.input)
        results.append({"type": "tool_result", "tool_use_id": block.id, "content": "rain"})
    results[-1] |= {
        "content": [{"type": "text", "text": "rain"}],
        "is_error": False,
        "cache_control": {"type": "ephemeral"},
    }
    said: Any = [block.model_dump() for block in found.content]
    chat: Any = [
        *CHAT,
        {"role": "assistant", "content": said},
        {"role": "user", "content": results},
    ]
    further = theirs.messages.create(max_tokens=2, messages=chat, **asked)
    kept = further.usage.cache_creation_input_tokens or 0
    assert kept + (further.usage.cache_read_input_tokens or 0) > 300
    counted = theirs.messages.count_tokens(messages=chat, **asked)
    assert counted.input_tokens == kept + further.usage.input_tokens + (
        further.usage.cache_read_input_tokens or 0
    )


def test_a_streamed_message_has_its_input_in_parts(theirs: anthropic.Anthropic) -> None:
    parts: dict[int, str] = {}
    with theirs.messages.stream(
        model=MODEL, max_tokens=LONG, messages=CHAT, tools=OWN, tool_choice={"type": "any"}
    ) as stream:
        for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                parts[event.index] = parts.get(event.index, "") + event.delta.partial_json
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    for at, block in enumerate(final.content):
        assert block.type == "tool_use"
        assert json.loads(parts[at]) == block.input
        check(block.name, block.input)
    once = theirs.messages.create(
        model=MODEL,
        max_tokens=LONG,
        messages=CHAT,
        tools=OWN,
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    assert len(once.content) == 1


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"structured_outputs": {"regex": "[a-c]{3}/[0-9]"}}, r"[a-c]{3}/[0-9]"),
        ({"structured_outputs": {"grammar": 'root ::= "x" | "yz"'}}, "x|yz"),
        ({"structured_outputs": {"grammar": 'start: "x" | "yz"'}}, "x|yz"),
        ({"structured_outputs": {"json_object": True}}, r"\{.*"),
        ({"response_format": {"type": "json_object"}}, r"\{.*"),
    ],
)
def test_answers_have_the_form_that_is_asked_for(
    client: openai.OpenAI, form: dict[str, Any], pattern: str
) -> None:
    for seed in range(3):
        (choice,) = ask(client, tools=None, extra_body=form, seed=seed, max_tokens=40).choices
        assert re.fullmatch(pattern, choice.message.content, re.DOTALL)


@pytest.mark.parametrize(
    "more",
    [
        {"structured_outputs": {"regex": "a", "choice": ["b"]}},
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        {"structured_outputs": {"choice": []}},
        {"structured_outputs": {"regex": "("}},
        {"structured_outputs": {"regex": "\ud800"}},
        {"structured_outputs": {"grammar": 'start: "\ud800"'}},
        {"structured_outputs": {"grammar": "start: nothing"}},
    ],
)
def test_forms_that_cannot_be_followed_are_refused(server: Running, more: dict[str, Any]) -> None:
    body = json.dumps({"model": MODEL, "messages": CHAT, "max_tokens": 4} | more)
    headers = {"Content-Type": "application/json"}
    found = httpx.post(f"{server.url}/v1/chat/completions", content=body, headers=headers)
    assert found.status_code == 400


def test_results_have_the_names_of_what_was_called() -> None:
    call = {"id": "7", "type": "function", "function": {"name": "now", "arguments": ""}}
    chat = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "7", "content": [{"type": "text", "text": "noon"}]},
        {"role": "tool", "tool_call_id": "8", "content": "x"},
    ]
    made, first, other = prompt_of([ChatMessage.model_validate(each) for each in chat])
    assert made.content == ToolCall("7", "now", "{}")
    assert first.content == ToolResult("7", "now", "noon")
    assert other.content == ToolResult("8", "", "x")


def test_what_looks_like_a_call_is_text_where_none_may_be() -> None:
    llama = CallForm("", '{"name": "', '", "parameters": ', "}", None)
    text = '{"name": "now", "parameters": {}}'
    for choice, calls in (("none", 0), ("auto", 1)):
        reply = ParsedAnswer(ToolUse((Function("now"),), choice), llama, "call_")
        reply.take(text)
        assert len(reply.calls) == calls
        assert reply.text == ("" if calls else text)
    assert len(ParsedAnswer(None, llama, "call_").take(text)) == 1
