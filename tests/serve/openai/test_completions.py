"""Plain completions that tell of their prompts, with OpenAI's client."""

from __future__ import annotations

from itertools import chain
from typing import Any

import openai
import pytest

TEXT = "Is the review positive? It was fine – a café."


def ask(client: openai.OpenAI, prompt: Any = TEXT, **more: Any) -> Any:
    usual = {"max_tokens": 3, "temperature": 0} | more
    return client.completions.create(model="demo", prompt=prompt, **usual)


def test_an_echo_is_the_prompt_and_its_answer(client: openai.OpenAI) -> None:
    prompts = [TEXT, "Tea is"]
    plain = ask(client, prompts, n=2)
    echoed = ask(client, prompts, n=2, echo=True)
    given = [prompts[at // 2] + choice.text for at, choice in enumerate(plain.choices)]
    assert [choice.text for choice in echoed.choices] == given
    assert echoed.usage.completion_tokens == plain.usage.completion_tokens


@pytest.mark.parametrize("most", [0, 1, 3])
def test_an_echo_with_log_probabilities_has_those_of_the_prompt(
    client: openai.OpenAI, most: int
) -> None:
    """As lm-eval asks for them: twice, so that the prompt is in the cache, by text and by ids."""
    full = ask(client, echo=True, logprobs=1, max_tokens=3)
    length, told = full.usage.prompt_tokens, full.choices[0].logprobs
    alone = ask(client, logprobs=1, max_tokens=3).choices[0].logprobs
    assert "".join(told.tokens[:length]).startswith("Is the review")
    assert told.text_offset[length] == len(TEXT)
    assert told.token_logprobs[0] is told.top_logprobs[0] is None
    assert told.token_logprobs[length:] == pytest.approx(alone.token_logprobs, abs=1e-4)
    made = ask(client, echo=True, logprobs=1, max_tokens=most)
    choice, count = made.choices[0], length + made.usage.completion_tokens
    assert made.usage.completion_tokens <= most
    assert (len(choice.text) > len(TEXT)) == (most > 0)
    assert choice.logprobs.tokens == told.tokens[:count]
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(
        told.token_logprobs[1:count], abs=1e-4
    )
    logs, tops = choice.logprobs.token_logprobs[1:], choice.logprobs.top_logprobs[1:]
    assert all(log <= max(top.values()) for log, top in zip(logs, tops, strict=True))


def test_token_ids_are_echoed_as_their_text(client: openai.OpenAI) -> None:
    ids = [int(next(iter(each))) for each in _told(client)[1:]]
    made = ask(client, [ids], echo=True, logprobs=0, max_tokens=0).choices[0]
    assert TEXT.endswith(made.text)
    assert len(made.logprobs.tokens) == len(ids)


def _told(client: openai.OpenAI, **more: Any) -> Any:
    made = ask(client, extra_body={"prompt_logprobs": 0}, **more).choices[0]
    return made.model_extra["prompt_logprobs"]


@pytest.mark.parametrize("most", [0, 3])
def test_a_stream_begins_with_the_echo_and_is_the_same(client: openai.OpenAI, most: int) -> None:
    ids = [int(next(iter(each))) for each in _told(client)[1:]]
    more: Any = {"n": 2, "echo": True, "logprobs": 1, "extra_body": {"prompt_logprobs": 1}}
    whole = ask(client, [ids, ids[:5]], max_tokens=most, **more)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    events = list(ask(client, [ids, ids[:5]], max_tokens=most, **more, **options))
    assert events[-1].usage == whole.usage
    for expected in whole.choices:
        parts = [each.choices[0] for each in events[:-1] if each.choices[0].index == expected.index]
        assert "".join(part.text for part in parts) == expected.text
        assert parts[-1].finish_reason == expected.finish_reason
        told = [part.model_extra.get("prompt_logprobs") for part in parts]
        assert [each is None for each in told] == [False] + [True] * (len(parts) - 1)
        assert list(map(set, told[0][1:])) == list(
            map(set, expected.model_extra["prompt_logprobs"][1:])
        )
        for name in ("tokens", "text_offset"):
            some = (getattr(part.logprobs, name) for part in parts if part.logprobs)
            assert [*chain.from_iterable(some)] == getattr(expected.logprobs, name)


def test_prompt_logprobs_have_vllms_form(client: openai.OpenAI) -> None:
    echoed = ask(client, echo=True, logprobs=2, max_tokens=0).choices[0].logprobs
    made = ask(client, max_tokens=0, extra_body={"prompt_logprobs": 2}).choices[0]
    told = made.model_extra["prompt_logprobs"]
    assert (made.text, made.finish_reason, told[0]) == ("", "length", None)
    assert len(told) == len(echoed.tokens)
    for at, each in enumerate(told[1:], 1):
        own, *others = each.values()
        assert own["decoded_token"] == echoed.tokens[at]
        assert own["logprob"] == pytest.approx(echoed.token_logprobs[at], abs=1e-4)
        assert len(each) == 2 + (own["rank"] > 2)
        assert {1, 2} <= {own["rank"], *(one["rank"] for one in others)}


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"prompt": [1 << 30], "echo": True}, "token id"),
        ({"prompt": [1 << 30], "echo": True, "stream": True}, "token id"),
        ({"extra_body": {"prompt_logprobs": -1}}, "prompt_logprobs"),
    ],
)
def test_what_is_not_supported_is_named(
    client: openai.OpenAI, more: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        ask(client, **more)
    assert caught.value.status_code in (400, 422)
    assert param in str(caught.value.param or caught.value)
