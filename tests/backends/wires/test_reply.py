"""Whatever a server replies is an answer or an error, never a traceback."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.backends.wires.answer_text import unfenced, without_reasoning
from relquery.backends.wires.openai import OpenAIChat
from relquery.backends.wires.reply import Usage, to_answer
from relquery.ledger import Ledger
from relquery.prompt import Answer, Finish, Sampling
from tests.cases import cases

CHAT = OpenAIChat("m")
LABELS = Sampling(labels=("Yes", "No"))


def reply(content: object, finish: object = "stop", output: object = 2, **message: object) -> str:
    usage = {"prompt_tokens": 10, "completion_tokens": output}
    choice = {"message": {"content": content, **message}, "finish_reason": finish}
    return json.dumps({"choices": [choice], "usage": usage})


def read(text: str, sampling: Sampling | None = None, limit: int | None = None) -> Answer:
    said = CHAT.read(text)
    assert said is not None
    return to_answer(said, sampling or Sampling(), 1, limit)


def test_an_answer_is_whole_by_whatever_reason_but_those_that_say_otherwise() -> None:
    for reason in ("stop", "STOP", "eos", "eos_token", "end_turn", "new", None, ""):
        answer = read(reply("It is.", reason), limit=256)
        assert answer == Answer("It is.", Finish.STOP, None, 10, 0, 2)
    for reason in ("length", "max_tokens", "MAX_TOKENS", "model_length"):
        answer = read(reply("It is", reason))
        assert (answer.text, answer.finish) == ("It is", Finish.LENGTH)
        assert "cut off after 2 tokens. Raise max_tokens" in str(answer.error)


@pytest.mark.parametrize(("reason", "cut"), [(None, True), ("new", True), ("stop", False)])
def test_an_answer_of_as_many_tokens_as_allowed_was_cut(reason: str | None, cut: bool) -> None:
    """Unless it is said to be whole."""
    finish = Finish.LENGTH if cut else Finish.STOP
    assert read(reply("It is", reason, output=5), limit=5).finish is finish
    assert read(reply("It is", reason, output=4), limit=5).finish is Finish.STOP


@pytest.mark.parametrize(("said", "error"), cases(__file__, "no answer"))
def test_what_is_no_answer_says_why(said: dict[str, Any], error: str) -> None:
    answer = read(reply(**said))
    assert (answer.text, answer.finish) == (None, Finish.ERROR)
    assert error in str(answer.error)


def test_text_in_parts_is_joined_without_what_is_no_text() -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "It"}]
    assert read(reply([*parts, {"type": "text", "text": " is."}])).text == "It is."


def test_odd_usage_counts_as_zero_and_costs_no_answer() -> None:
    odds: tuple[Any, ...] = ("12", None, -3, 2.5, True, [], {}, 10**12, 10**30, "x")
    for odd in odds:
        usage = {"prompt_tokens": odd, "completion_tokens": odd}
        assert Usage.of(usage | {"prompt_tokens_details": {"cached_tokens": odd}}) == Usage()
    for whole in (*odds[:4], {"prompt_tokens_details": [1]}):
        body = json.loads(reply("It is.")) | {"usage": whole}
        assert read(json.dumps(body)) == Answer("It is.", Finish.STOP)
    assert Usage.of({"prompt_tokens": 12.0, "completion_tokens": 3}) == Usage(12, 0, 3)
    assert read('{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":NaN}}').text


@pytest.mark.parametrize(
    ("prompt", "output", "more", "asked", "drawn", "adds_up"), cases(__file__, "usage")
)
def test_usage_is_read_so_that_no_token_is_left_out(
    prompt: object, output: object, more: dict[str, Any], asked: int, drawn: int, adds_up: bool
) -> None:
    for names in (("prompt", "completion"), ("input", "output")):
        said = {f"{name}_tokens": told for name, told in zip(names, (prompt, output), strict=True)}
        for part, name in (("cached", names[0]), ("reasoning", names[1])):
            if part in more:
                said[f"{name}_tokens_details"] = {f"{part}_tokens": more[part]}
        usage = Usage.named(said | {"total_tokens": more.get("total")}, *names)
        assert (usage.prompt, usage.output, not usage.contradiction) == (asked, drawn, adds_up)


def test_an_answer_whose_tokens_are_not_told_is_not_known_to_be_free() -> None:
    for output in (None, "3", -3):
        assert not Usage.of({"prompt_tokens": 9, "completion_tokens": output}).tells_output
    assert Usage.of({"prompt_tokens": 9, "completion_tokens": 0}).tells_output
    assert Usage.of({"prompt_tokens": 9, "total_tokens": 12}).tells_output


@pytest.mark.parametrize(("text", "answer"), cases(__file__, "reasoning"))
def test_an_answer_is_what_follows_its_reasoning(text: str, answer: str | None) -> None:
    assert without_reasoning(text) == answer


@given(
    st.lists(st.sampled_from(["think", "thought"]), max_size=3),
    st.text(alphabet="ab \n`", max_size=8),
    st.text(alphabet="Yes ", max_size=5),
)
def test_reasoning_of_any_length_is_taken_off(names: list[str], said: str, answer: str) -> None:
    text = "".join(f"<{name}>{said}</{name}>\n" for name in names) + answer
    assert without_reasoning(text) == (answer.lstrip() if names else answer)


def test_reasoning_that_never_ends_was_cut_whatever_the_server_says() -> None:
    for reason in ("stop", "length", None):
        answer = read(reply("<think>Yes, as", reason, output=9), LABELS)
        assert (answer.text, answer.finish) == (None, Finish.LENGTH)
        assert "cut off after 9 tokens, during the model's reasoning" in str(answer.error)


@pytest.mark.parametrize(("text", "label"), [*cases(__file__, "labels"), ("[" * 5000, None)])
def test_a_label_is_found_after_reasoning_and_in_a_code_fence(text: str, label: str | None) -> None:
    answer = read(reply(text), LABELS)
    assert answer.text == label
    assert (answer.error is None) == (label is not None)


def test_a_label_may_look_like_anything_and_only_one_block_of_code_is_unpacked() -> None:
    odd = Sampling(labels=("```\nx\n```", "<b>", " Yes"))
    for text in odd.labels:
        assert read(reply(text), odd).text == text
    for text in ("", "x", "```", "`x`", "a\n```\nb\n```"):
        assert unfenced(text) == text
    for text in ("``````", "```\n```"):
        assert unfenced(text) == ""


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["stop", "length", "Yes", "<think>", "```", "", "\ud800", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["answer", "type", "text", "content"]), inner)
    ),
    max_leaves=6,
)


@st.composite
def replies(draw: st.DrawFn) -> str:
    """A chat completion of which any part is anything."""
    good = json.loads(reply("Yes", refusal=None, reasoning_content=None))
    good["usage"]["prompt_tokens_details"] = {"cached_tokens": 3}
    for _ in range(draw(st.integers(0, 4))):
        at: Any = good
        while isinstance(at, (dict, list)) and at:
            key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if draw(st.integers(0, 3)) == 0:
                at[key] = draw(JSON)
                break
            at = at[key]
    return json.dumps(good)


@pytest.mark.long
@given(st.one_of(replies(), JSON.map(json.dumps), st.text()), st.booleans(), st.integers(1, 9))
def test_any_reply_is_read_and_can_be_stored(text: str, has_labels: bool, limit: int) -> None:
    said = CHAT.read(text)
    if said is None:
        return
    answer = to_answer(said, LABELS if has_labels else Sampling(), 1, limit, ("Y",))
    assert (answer.error is None) == (answer.finish is Finish.STOP)
    assert answer.error is not None or isinstance(answer.text, str)
    assert not has_labels or answer.text in (None, *LABELS.labels)
    with closing(Ledger.open()) as ledger:
        ledger.put([(b"k", answer)])
        assert (ledger.get([b"k"]) != {}) == (answer.error is None)


def test_what_is_no_json_is_no_completion() -> None:
    for text in ("", "[" * 100_000, "1" * 5000, '{"choices": [', "<html>"):
        assert CHAT.read(text) is None
