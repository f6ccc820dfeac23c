"""Chat completions, with OpenAI's client."""

from __future__ import annotations

from typing import Any, Literal

import anthropic
import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.cases import cases
from tests.serve.conftest import Running

REVIEW = "Is the review positive?\nreviewcontent: A wonderful film with a strong plot.\n"
LATER = [pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12)]
STORY = "Tell me about the films that you have seen, and the people in them."


def asked(text: str = REVIEW) -> Any:
    return [{"role": "user", "content": text}]


def ask(client: openai.OpenAI, text: str = REVIEW, **more: Any) -> Any:
    return client.chat.completions.create(model="demo", messages=asked(text), **more)


def streamed(client: openai.OpenAI, text: str, **more: Any) -> dict[int, tuple[str, str]]:
    """(text, why it ended) of each choice, its pieces joined."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    for event in ask(client, text, stream=True, **more):
        for choice in event.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    return {index: (texts[index], reasons[index]) for index in texts}


def test_a_chat_is_answered_and_a_cut_answer_says_so(client: openai.OpenAI) -> None:
    found = ask(client, temperature=0)
    assert found.choices[0].message.content == "Yes"
    cut = ask(client, STORY, max_tokens=2, temperature=2, seed=2)
    for each, reason, count in ((found, "stop", 1), (cut, "length", 2)):
        assert (each.choices[0].finish_reason, each.usage.completion_tokens) == (reason, count)


def test_a_last_message_of_the_assistant_is_closed(client: openai.OpenAI, server: Running) -> None:
    """Unlike in Anthropic's API, where the answer continues it."""
    messages: Any = [*asked(), {"role": "assistant", "content": "It is"}]
    found: Any = client.chat.completions.create(model="demo", messages=messages, max_tokens=1)
    with anthropic.Anthropic(base_url=server.url, api_key="none") as theirs:
        opened = theirs.messages.count_tokens(model="demo", messages=messages).input_tokens
    assert found.usage.prompt_tokens > opened


def test_a_seed_repeats_an_answer_and_its_choices_differ(client: openai.OpenAI) -> None:
    first, second = (
        [each.message.content for each in ask(client, STORY, n=3, seed=7, temperature=2).choices]
        for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 3


@pytest.mark.parametrize("seed", [0, 1, *LATER])
@pytest.mark.parametrize("stop", [None, ["e", "the "], ["qqq", ", "]])
def test_streamed_pieces_are_whole(client: openai.OpenAI, seed: int, stop: list[str]) -> None:
    options: Any = {"seed": seed, "temperature": 2, "n": 2, "max_tokens": 60, "stop": stop}
    choices = ask(client, STORY, **options).choices
    whole = {each.index: (each.message.content or "", each.finish_reason) for each in choices}
    assert streamed(client, STORY, **options) == whole
    for text, _ in whole.values():
        assert not any(each in text for each in stop or [])


def test_a_repeated_prompt_is_read_from_the_cache(client: openai.OpenAI) -> None:
    text = "A long prompt about a film and its actors. " * 20
    _, again = (ask(client, text, max_tokens=1) for _ in range(2))
    assert again.usage.prompt_tokens_details.cached_tokens > 100


def test_choices_share_a_prompt_whose_tokens_count_once(client: openai.OpenAI) -> None:
    text = REVIEW * 9 + "Is it?"
    ask(client, text, max_tokens=1)
    one, three = (ask(client, text, n=n, seed=1, max_tokens=1).usage for n in (1, 3))
    assert three.prompt_tokens == one.prompt_tokens
    cached = [each.prompt_tokens_details.cached_tokens for each in (one, three)]
    assert 100 < cached[0] == cached[1] < one.prompt_tokens


def test_a_stream_ends_with_its_usage(client: openai.OpenAI) -> None:
    given: Any = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    *events, last = ask(client, **given)
    assert [event.usage for event in events] == [None] * len(events)
    assert (last.choices, last.usage.completion_tokens) == ([], 1)


class Review(BaseModel):
    positive: Literal["Yes", "No"]
    stars: Literal[1, 2, 3]


def test_answers_follow_a_schema(client: openai.OpenAI) -> None:
    found = client.chat.completions.parse(
        model="demo", messages=asked(), response_format=Review, temperature=2
    )
    assert isinstance(found.choices[0].message.parsed, Review)


def test_log_probabilities_are_of_the_answers_tokens(client: openai.OpenAI) -> None:
    found = ask(client, STORY, seed=3, temperature=2, max_tokens=20, logprobs=True, top_logprobs=3)
    told = found.choices[0].logprobs.content
    assert len(told) == found.usage.completion_tokens
    spelt = bytes(each for token in told for each in token.bytes or [])
    assert spelt.decode(errors="replace") == found.choices[0].message.content
    for token in told:
        tops = [each.logprob for each in token.top_logprobs]
        assert len(tops) == 3
        assert tops == sorted(tops, reverse=True)
        assert token.logprob <= tops[0] <= 0


def test_streamed_log_probabilities_are_those_of_the_whole_answer(client: openai.OpenAI) -> None:
    options: Any = {"seed": 5, "temperature": 2, "max_tokens": 20}
    options |= {"logprobs": True, "top_logprobs": 2}
    whole = ask(client, STORY, **options).choices[0].logprobs.content
    streamed = (event.choices for event in ask(client, STORY, stream=True, **options))
    told = [choice.logprobs for choices in streamed for choice in choices if choice.logprobs]
    pieces = [token for each in told for token in each.content or []]
    assert [token.token for token in pieces] == [token.token for token in whole]
    for token, other in zip(pieces, whole, strict=True):
        assert token.logprob == pytest.approx(other.logprob, abs=1e-3)


def test_logits_are_adjusted_as_asked_for(client: openai.OpenAI, server: Running) -> None:
    usual: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
    told = ask(client, logprobs=True, **usual).choices[0].logprobs.content
    (yes,) = httpx.post(f"{server.url}/tokenize", json={"prompt": told[0].token}).json()["tokens"]
    biased = ask(client, logit_bias={str(yes): -100}, **usual).choices[0].message.content
    assert not biased.startswith("Yes")
    longer = ask(client, extra_body={"min_tokens": 7, "repetition_penalty": 1.2}, **usual)
    assert 7 <= longer.usage.completion_tokens <= 12
    endless = ask(client, presence_penalty=1, extra_body={"ignore_eos": True}, **usual)
    assert (endless.usage.completion_tokens, endless.choices[0].finish_reason) == (12, "length")


def test_a_message_may_have_a_name_or_no_content(client: openai.OpenAI) -> None:
    named: Any = [
        {"role": "user", "content": "Hello", "name": "ann"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": REVIEW, "name": "bob"},
    ]
    found = client.chat.completions.create(model="demo", messages=named, temperature=0)
    assert found.choices[0].message.content == "Yes"


@pytest.mark.parametrize(("more", "param"), cases(__file__))
def test_what_is_not_supported_is_named(client: openai.OpenAI, more: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **more)
    assert caught.value.param == param


def test_a_prompt_that_is_too_long_is_refused_also_for_a_stream(client: openai.OpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, "word " * 5000, stream=stream)
        assert caught.value.code == "context_length_exceeded"
