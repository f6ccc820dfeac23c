"""Chats with tools are what transformers makes of them by the model's template."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from benchmarks.stock import stock_tokenizer
from relquery.errors import RequestError
from relquery.model.networks.random import train_tokenizer
from relquery.model.text.render import Renderer
from relquery.model.text.tokenizer import Tokenizer
from relquery.prompt import Prompt, Role, Span
from relquery.tools import HERMES, CallForm, Function, ToolCall, ToolResult, Tools
from tests.model.text.test_render import CHAT, TEXTS, tokens_of
from tests.model.text.tool_templates import SPECIAL, TEMPLATES

FORMS = {
    "hermes": HERMES,
    "llama3": CallForm("", '{"name": "', '", "parameters": ', "}", None),
    "mistral": CallForm(
        "[TOOL_CALLS][", '{"name": "', '", "arguments": ', "}", ", ", "]", short_ids=True
    ),
}
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "description": "é <b>"}}}
TOOLS = (Function("weather", 'Of a "city"\nnow.', json.dumps(WEATHER)), Function("now"))
texts = st.text(st.sampled_from('ab ,."\n{é<[\U00100000\ue000'), max_size=8)
values = st.dictionaries(texts, texts | st.integers() | st.lists(texts, max_size=2), max_size=2)


@cache
def tokenizer_of(template: str) -> Tokenizer:
    backend = Backend.from_str(train_tokenizer(TEXTS, 400).backend.to_str())
    backend.add_special_tokens([AddedToken(each, special=True) for each in SPECIAL])
    return Tokenizer(backend, {"bos_token": "<s>", "eos_token": "</s>"}, template)


@cache
def renderer(template: str) -> Renderer:
    return Renderer(tokenizer_of(template))


def stock_text(template: str, chat: list[dict[str, Any]], tools: tuple[Function, ...]) -> str:
    """The text of transformers."""
    stock: Any = stock_tokenizer(tokenizer_of(template))
    told = [
        {
            "type": "function",
            "function": {"name": each.name}
            | ({} if each.description is None else {"description": each.description})
            | {"parameters": json.loads(each.parameters)},
        }
        for each in tools
    ]
    text: str = stock.apply_chat_template(
        chat, tools=told or None, add_generation_prompt=True, tokenize=False
    )
    return text


def text_of(template: str, prompt: Prompt) -> str:
    """The text of our tokens, with special ones."""
    one = renderer(template)
    text: str = one._tokenizer.backend.decode(tokens_of(one, prompt), skip_special_tokens=False)
    return text


turns = st.lists(
    st.tuples(texts, st.lists(st.tuples(values, texts), min_size=1, max_size=2), texts), max_size=2
)


@pytest.mark.parametrize("name", TEMPLATES)
@given(head=st.none() | texts, first=texts, turns=turns)
def test_a_chat_with_tools_is_rendered_as_transformers_renders_it(
    name: str, head: str | None, first: str, turns: list[Any]
) -> None:
    template = TEMPLATES[name]
    spans = [Span(Tools(TOOLS), Role.SYSTEM)]
    chat: list[dict[str, Any]] = []
    if head is not None:
        spans.append(Span(head, Role.SYSTEM))
        chat.append({"role": "system", "content": head})
    spans.append(Span(first, begins=True))
    chat.append({"role": "user", "content": first})
    for number, (said, many, answer) in enumerate(turns):
        calls = many[: 1 if name == "llama3" else None]
        ids = [f"{number}{at}aaaaaaa" for at in range(len(calls))]
        spans.append(Span(said, Role.ASSISTANT, begins=True))
        told = []
        for each, (arguments, _) in zip(ids, calls, strict=True):
            spans.append(Span(ToolCall(each, "weather", json.dumps(arguments)), Role.ASSISTANT))
            called = {"name": "weather", "arguments": arguments}
            told.append({"type": "function", "id": each, "function": called})
        chat.append({"role": "assistant", "content": said, "tool_calls": told})
        for each, (_, result) in zip(ids, calls, strict=True):
            spans.append(Span(ToolResult(each, "weather", result), Role.TOOL, begins=True))
            chat.append(
                {"role": "tool", "content": result, "tool_call_id": each, "name": "weather"}
            )
        spans += [Span(answer, Role.ASSISTANT, begins=True), Span("Go on.", begins=True)]
        chat += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Go on."}]
    expected = stock_text(template, chat, TOOLS)
    assert text_of(template, tuple(spans)) == expected
    kept = tuple(replace(span, keep=1) for span in spans)
    assert tokens_of(renderer(template), kept) == tokens_of(renderer(template), tuple(spans))


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_form_of_calls_is_found_in_the_template(name: str) -> None:
    assert renderer(TEMPLATES[name]).call_form == FORMS[name]


@pytest.mark.parametrize("name", TEMPLATES)
def test_special_tokens_in_tools_calls_and_results_are_text(name: str) -> None:
    one = renderer(TEMPLATES[name])

    def count_in_chat_of(text: str, number: int) -> int:
        schema = json.dumps({"type": "object", "properties": {text: {"type": "string"}}})
        prompt = (
            Span(Tools((Function("f", text, schema),)), Role.SYSTEM),
            Span(text),
            Span(ToolCall("aaaaaaaaa", "f", json.dumps({text: text})), Role.ASSISTANT),
            Span(ToolResult("aaaaaaaaa", "f", text), Role.TOOL),
        )
        assert text in text_of(TEMPLATES[name], prompt)
        return tokens_of(one, prompt).count(number)

    for mark in SPECIAL:
        number = one._tokenizer.special_ids[mark]
        assert count_in_chat_of(mark, number) == count_in_chat_of("harmless", number)


def test_ids_are_made_short_where_the_template_wants_it() -> None:
    def chat(one: str, other: str) -> Prompt:
        return (
            Span("Now?"),
            Span(ToolCall(one, "now", "{}"), Role.ASSISTANT),
            Span(ToolResult(other, "now", "noon"), Role.TOOL),
        )

    template = TEMPLATES["mistral"]
    text = text_of(template, chat("call_0123456789", "call_0123456789"))
    told = text.split('"id": "')[1][:9]
    assert told.isalnum()
    assert f'"call_id": "{told}"' in text
    assert '"id": "abcdefgh1"' in text_of(template, chat("abcdefgh1", "abcdefgh1"))


def test_a_template_without_tools_is_told_of_them_as_hermes_is() -> None:
    prompt = (
        Span(Tools(TOOLS), Role.SYSTEM),
        Span("Be kind.", Role.SYSTEM),
        Span("Two calls.", begins=True),
        Span("Well.", Role.ASSISTANT),
        Span(ToolCall("1", "weather", '{"city": "Bonn"}'), Role.ASSISTANT),
        Span(ToolCall("2", "now", "{}"), Role.ASSISTANT),
        Span(ToolResult("1", "weather", "rain"), Role.TOOL, begins=True),
        Span(ToolResult("2", "now", "noon"), Role.TOOL, begins=True),
    )
    for template in ("", CHAT):
        assert renderer(template).call_form == HERMES
        text = text_of(template, prompt)
        assert text.index("Be kind.") < text.index('"name": "weather", "description": "Of a')
        assert (
            'Well.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
        ) in text
        assert (
            "<tool_response>\nrain\n</tool_response>\n<tool_response>\nnoon\n</tool_response>"
        ) in text


@pytest.mark.parametrize("template", ["", TEMPLATES["hermes"]])
def test_halves_of_characters_are_refused(template: str) -> None:
    half = '{"a": "\\ud800"}'
    parts: list[Any] = [
        Tools((Function("f", "\ud800"),)),
        Tools((Function("f", None, half),)),
        ToolCall("1", "f", half),
        ToolResult("1", "f", "\ud800"),
    ]
    for part in parts:
        with pytest.raises(RequestError, match="not Unicode text"):
            text_of(template, (Span("x"), Span(part, Role.ASSISTANT)))


def test_what_the_template_refuses_is_refused() -> None:
    calls = [Span(ToolCall(each, "now", "{}"), Role.ASSISTANT) for each in "12"]
    with pytest.raises(RequestError, match="one call at a time"):
        text_of(TEMPLATES["llama3"], (Span("Now?"), *calls))
