"""Calls are read from an answer's text, however it is cut."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import ConfigError
from relquery.tools import HERMES, CallForm, CallParser, Function, ToolUse

LLAMA = CallForm("", '{"name": "', '", "parameters": ', "}", None)
MISTRAL = CallForm("[TOOL_CALLS][", '{"name": "', '", "arguments": ', "}", ", ", "]")
ARGS = CallForm("", "[TOOL_CALLS]", "[ARGS]", "", "")
FORMS = {"hermes": HERMES, "llama": LLAMA, "mistral": MISTRAL, "args": ARGS}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(
        ['"', "\\", "}", "{", "]", '\\"}', "</tool_call>", '<tool_call>\n{"name": "', "[ARGS]"]
    ),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4) | st.sampled_from(['"}', "{"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
ARGUMENTS = st.dictionaries(st.text(max_size=6), JSON, max_size=4)
CALLS = st.lists(st.tuples(st.sampled_from(["f", "get-weather_2"]), ARGUMENTS), max_size=3)
SAID = st.text(max_size=20) | st.sampled_from(["<", "<tool_call", "[TOOL_", "a <tool_calls> b", ""])


@dataclass
class Heard:
    """What deltas add up to."""

    text: str = ""
    calls: list[list[str]] = field(default_factory=list)

    def hear(self, parser: CallParser, pieces: list[str]) -> Heard:
        for delta in [each for piece in pieces for each in parser.take(piece)] + parser.end():
            self.text += delta.text
            if delta.call is not None:
                if delta.name:
                    assert delta.call == len(self.calls), "calls come one after the other"
                    self.calls.append([delta.name, ""])
                assert delta.call == len(self.calls) - 1
                self.calls[-1][1] += delta.arguments
        return self


def written(form: CallForm, said: str, calls: list[tuple[str, str]]) -> str:
    """An answer as the definition of a form says."""
    if not calls:
        return said
    each = [f"{form.begin}{name}{form.middle}{text}{form.end}" for name, text in calls]
    return said + form.head + (form.between or "").join(each) + form.tail


def pieces_of(text: str, random: Random) -> list[str]:
    cuts = sorted(random.choices(range(len(text) + 1), k=random.randrange(len(text) + 2)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("name", FORMS)
@given(SAID, CALLS, st.booleans(), st.randoms(use_true_random=False))
def test_deltas_add_up_to_the_text_and_the_calls(
    name: str, said: str, calls: list[tuple[str, object]], ascii: bool, random: Random
) -> None:
    form = FORMS[name]
    if form.between is None:
        calls = calls[:1]
    if not form.tag:
        said = "" if calls else said.lstrip("{")
    texts = [(called, json.dumps(value, ensure_ascii=ascii)) for called, value in calls]
    answer = written(form, said, texts)
    parser = CallParser(form)
    heard = Heard().hear(parser, pieces_of(answer, random))
    assert heard.text == said
    assert heard.calls == [list(each) for each in texts]
    assert parser.is_whole


@pytest.mark.parametrize("name", FORMS)
@given(CALLS.filter(bool), st.integers(0, 200), st.randoms(use_true_random=False))
def test_of_an_answer_that_is_cut_comes_what_is_there(
    name: str, calls: list[tuple[str, object]], cut: int, random: Random
) -> None:
    form = FORMS[name]
    texts = [(called, json.dumps(value)) for called, value in calls]
    answer = written(form, "", texts[: 1 if form.between is None else None])[:cut]
    heard = Heard().hear(CallParser(form), pieces_of(answer, random))
    assert heard.text in answer
    for (called, arguments), (expected, whole) in zip(heard.calls, texts, strict=False):
        assert called == expected
        assert whole.startswith(arguments)


@pytest.mark.parametrize(
    "text", ["<tool_call> I mean", '<tool_call>\n{"nam', "a < b", '{"name": "x"}']
)
def test_what_only_begins_as_a_call_is_text(text: str) -> None:
    cut = text if text != '<tool_call>\n{"nam' else ""  # of a call that was cut there is nothing
    assert Heard().hear(CallParser(HERMES), [text]) == Heard(cut)


def test_tools_that_do_not_fit_are_refused() -> None:
    both = (Function("f"), Function("g"))
    with pytest.raises(ConfigError, match="named 'a b'"):
        Function("a b")
    with pytest.raises(ConfigError, match="Two functions are named 'f'"):
        ToolUse((*both, Function("f")))
    with pytest.raises(ConfigError, match=r"'h' is to be called.*: f, g"):
        ToolUse(both, "h")
    with pytest.raises(ConfigError, match="No function"):
        ToolUse(())
