"""Networks with random weights give only calls that are valid, in each form of templates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tokenizers import AddedToken, decoders
from tokenizers import Tokenizer as Backend

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.schemas import arguments_followed
from relquery.errors import ConfigError
from relquery.model.grammar import Grammar, Grammars
from relquery.model.native_model import open_random
from relquery.model.networks.random import train_tokenizer
from relquery.model.text.tokenizer import Tokenizer
from relquery.prompt import Answer, Finish, Prompt, Role, Sampling, Span
from relquery.tools import HERMES, CallForm, CallParser, Function, Tools, ToolUse
from tests.backends.local.collected import Collected
from tests.model.text.test_render import TEXTS, metaspace
from tests.model.text.test_tool_template import FORMS
from tests.model.text.tool_templates import ENDS, SPECIAL, TEMPLATES
from tests.test_tools import Heard

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 5},
        "units": {"enum": ["c", 'f"}', None]},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99},
                 "maxItems": 2},
        "at": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
    },
    "required": ["city", "at"],
}  # fmt: skip
TOOLS = (Function("weather", "x", json.dumps(SCHEMA)), Function("now"))
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": SCHEMA,
    "now": {"type": "object", "maxProperties": 0},
}
TAGS = ("<tool_call>", "</tool_call>", "<think>")


@cache
def tokenizer_of(name: str, has_tags: bool) -> Tokenizer:
    backend = Backend.from_str(train_tokenizer(TEXTS, 400).backend.to_str())
    backend.add_special_tokens([AddedToken(each, special=True) for each in SPECIAL])
    if has_tags:
        backend.add_tokens([AddedToken(each, special=False) for each in TAGS])
    special = {"bos_token": "<s>", "eos_token": ENDS[name]}
    return Tokenizer(backend, special, TEMPLATES[name])


@cache
def backend_of(name: str, has_tags: bool = False) -> EmbeddedBackend:
    spec = "random:layers=1,hidden=32,heads=2,context=4096"
    return EmbeddedBackend(open_random(spec, "float32", tokenizer_of(name, has_tags)))


def prompt(number: int) -> Prompt:
    return (Span(Tools(TOOLS), Role.SYSTEM), Span(f"Question {number}?"))


def answers(backend: EmbeddedBackend, use: ToolUse, count: int, **more: Any) -> list[Answer]:
    sampling = Sampling(max_tokens=400, temperature=1.0, seed=1, tools=use, **more)
    found = dict(backend.answer([prompt(number) for number in range(count)], sampling))
    return [found[number] for number in range(count)]


def heard(answer: Answer, form: CallForm) -> Heard:
    return Heard().hear(CallParser(form), [answer.text or ""])


def checked(answer: Answer, form: CallForm) -> list[str]:
    """The names that an answer calls; their arguments are valid, and nothing else stands there."""
    found = heard(answer, form)
    end = -1 if answer.finish is Finish.LENGTH else None  # the last may be cut
    for name, given in found.calls[:end]:
        arguments = json.loads(given)
        Draft202012Validator(SCHEMAS[name]).validate(arguments)
        assert given == json.dumps(arguments, ensure_ascii=False) or "\\" in given
        assert set(arguments) <= set(SCHEMAS[name].get("properties", {}))
    assert form.tag == "" or form.tag not in found.text
    return [name for name, _ in found.calls]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("has_tags", [False, True])
def test_required_answers_are_calls(name: str, has_tags: bool) -> None:
    backend = backend_of(name, has_tags)
    assert backend.call_form == FORMS[name]
    counts, names = set(), set()
    for answer in answers(backend, ToolUse(TOOLS, "required"), 12):
        found = checked(answer, FORMS[name])
        assert heard(answer, FORMS[name]).text == ""
        assert found
        assert answer.finish in (Finish.STOP, Finish.LENGTH)
        counts.add(len(found))
        names |= set(found)
    assert names == {"weather", "now"}
    assert (len(counts) > 1) == (FORMS[name].between is not None)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_named_function_is_called_once_and_one_alone_where_calls_are_not_parallel(
    name: str,
) -> None:
    backend = backend_of(name)
    for answer in answers(backend, ToolUse(TOOLS, "weather"), 6):
        assert checked(answer, FORMS[name]) == ["weather"]
    for answer in answers(backend, ToolUse(TOOLS, "required", parallel=False), 6):
        assert len(checked(answer, FORMS[name])) == 1


def test_where_the_model_may_choose_there_is_text_or_calls_or_both() -> None:
    kinds = set()
    for name in ("hermes", "mistral"):  # whose tags are single tokens here
        for answer in answers(backend_of(name, has_tags=True), ToolUse(TOOLS), 30):
            calls = checked(answer, FORMS[name])
            text = heard(answer, FORMS[name]).text
            kinds.add((bool(text), bool(calls)))
            if name == "hermes" and "<think>" in text:
                kinds.add((True, True))
    assert {(True, False), (True, True)} <= kinds


@pytest.mark.parametrize("name", TEMPLATES)
def test_with_none_there_is_no_call(name: str) -> None:
    for answer in answers(backend_of(name, has_tags=True), ToolUse(TOOLS, "none"), 10):
        assert heard(answer, FORMS[name]) == Heard(answer.text or "")


def test_streamed_pieces_show_the_tags_that_the_whole_answer_has() -> None:
    backend = backend_of("hermes", has_tags=True)
    sampling = Sampling(max_tokens=200, temperature=1.0, seed=2, tools=ToolUse(TOOLS, "required"))
    job = Collected(backend, [prompt(0)], sampling, streamed=True)
    answer = job.finish()[0]
    assert "".join(piece.text for _, piece in job.pieces) == answer.text
    assert (answer.text or "").startswith('<tool_call>\n{"name": "')


def grammar_of(use: ToolUse, form: CallForm, has_tags: bool = False) -> tuple[Grammars, Grammar]:
    tokenizer = tokenizer_of("hermes", has_tags)
    end = tokenizer.id_of("eos_token")
    assert end is not None
    grammars = Grammars(tokenizer, len(tokenizer), {end}, arguments=arguments_followed)
    return grammars, grammars.of_tools(use, form)


def allows(use: ToolUse, form: CallForm, text: str, has_tags: bool = False) -> bool:
    """Whether an answer may be this text."""
    tokenizer = tokenizer_of("hermes", has_tags)
    _, grammar = grammar_of(use, form, has_tags)
    matcher = grammar.matcher(stepwise=True)
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.encode_special_tokens = False
    for token in backend.encode(text, add_special_tokens=False).ids:
        if not matcher.inner.consume_token(token):
            return False
    return bool(matcher.inner.is_accepting())


NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
CITY = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "a", "at": {"x": true}}}\n</tool_call>'
)


@pytest.mark.parametrize("has_tags", [False, True])
@pytest.mark.parametrize(
    ("choice", "text", "allowed"),
    [
        ("auto", "", True),
        ("auto", "Well <tool_ca", True),
        ("auto", NOW, True),
        ("auto", f"Well, {NOW}\n{CITY}", True),
        ("auto", f"{NOW}{NOW}", False),
        ("auto", f"{NOW} done", False),
        ("auto", "a <tool_call> b", False),
        ("auto", '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>', False),
        ("auto", '<tool_call>\n{"name": "now", "arguments": {"a": 1}}\n</tool_call>', False),
        ("auto", CITY.replace('"at": ', '"days": [1, 2], "at": '), True),
        ("auto", CITY.replace('"city": "a", ', ""), False),
        ("required", "", False),
        ("required", f"{NOW}\n{NOW}", True),
        ("weather", NOW, False),
        ("weather", CITY, True),
        ("weather", f"{CITY}\n{CITY}", False),
        ("none", NOW, False),
        ("none", "Well.", True),
    ],
)
def test_the_grammar_is_text_or_calls(
    choice: str, text: str, allowed: bool, has_tags: bool
) -> None:
    assert allows(ToolUse(TOOLS, choice), HERMES, text, has_tags) == allowed


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"name": "now", "parameters": {}}', True),
        ('{"title": "now"}', True),
        ('{"name": "other", "parameters": {}}', False),
        ('So {"name": "other"}', True),
        ('{"name": "now", "parameters": {}} {"name": "now", "parameters": {}}', False),
    ],
)
def test_without_a_tag_what_begins_as_a_call_is_one(text: str, allowed: bool) -> None:
    assert allows(ToolUse(TOOLS), FORMS["llama3"], text) == allowed


def test_parameters_that_cannot_be_followed_are_refused() -> None:
    def refused(schema: object) -> str:
        with pytest.raises(ConfigError) as error:
            grammar_of(ToolUse((Function("f", None, json.dumps(schema)),)), HERMES)
        return str(error.value)

    assert 'have the type "string"; they must be an object' in refused({"type": "string"})
    assert "if" in refused({"type": "object", "properties": {}, "if": {}})


def test_a_blank_that_a_tokenizer_puts_before_a_text_is_no_part_of_it() -> None:
    tokenizer = metaspace()
    tokenizer.backend.decoder = decoders.Sequence(  # as that of Llama 2 and Mistral
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Strip(" ", 1, 0)]
    )
    grammars = Grammars(tokenizer, len(tokenizer), {tokenizer.special_ids["<|end|>"]})
    grammar = grammars.of_tools(ToolUse(TOOLS), HERMES)
    (ids,) = tokenizer.encode(["long story"])
    assert grammars.spell(ids)[0].startswith(b" ")
    spell = grammar.spelling()
    assert grammar.text(ids) == "".join(spell([token]) for token in ids) == "long story"
    assert grammars.of_lark("start: /.*/").text(ids) == " long story"


def test_answers_may_follow_a_grammar_and_stop_strings() -> None:
    backend = backend_of("llama3")

    def asked(lark: str, **more: Any) -> list[str]:
        sampling = Sampling(max_tokens=60, temperature=1.0, seed=3, grammar=lark, **more)
        prompts: Sequence[Prompt] = [(Span(str(each)),) for each in range(4)]
        return [answer.text or "" for _, answer in backend.answer(prompts, sampling)]

    assert all(len(text) == 5 and text[:2] == "a-" for text in asked("start: /a-[0-9]{3}/"))
    assert all(text in ("a-", "a") for text in asked('start: "a-" /[x]{3}/', stop=("x", "-")))
    with pytest.raises(ConfigError, match="The grammar cannot be followed"):
        asked("start: nothing")
