"""Plain completions, with OpenAI's client."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from tests.serve.conftest import Running

TEXT = "The film is about"


def test_a_text_is_continued_without_a_template(client: openai.OpenAI, server: Running) -> None:
    found: Any = client.completions.create(model="demo", prompt=TEXT, temperature=0)
    tokens = httpx.post(f"{server.url}/tokenize", json={"prompt": TEXT}).json()["tokens"]
    assert found.usage.prompt_tokens == len(tokens)
    assert found.usage.completion_tokens <= 16
    same = client.completions.create(model="demo", prompt=tokens, temperature=0)
    assert same.choices[0].text == found.choices[0].text
    two: Any = client.completions.create(model="demo", prompt=[[44, 809], [83]], max_tokens=1)
    assert (len(two.choices), two.usage.prompt_tokens) == (2, 3)


def test_each_prompt_has_its_choices_in_order(client: openai.OpenAI) -> None:
    prompts = [TEXT, "Anna was", "On Monday"]
    options: Any = {"temperature": 2, "seed": 4, "max_tokens": 12}
    together = client.completions.create(model="demo", prompt=prompts, n=2, **options)
    assert [choice.index for choice in together.choices] == list(range(6))
    for at, prompt in enumerate(prompts):
        alone = client.completions.create(model="demo", prompt=prompt, n=2, **options)
        mine = [choice.text for choice in together.choices[2 * at : 2 * at + 2]]
        assert mine == [choice.text for choice in alone.choices]


def test_streamed_pieces_are_the_whole_text(client: openai.OpenAI) -> None:
    options: Any = {"temperature": 2, "seed": 3, "max_tokens": 40, "n": 2, "stop": ["a", "in "]}
    prompts = [TEXT, "Anna was"]
    whole = client.completions.create(model="demo", prompt=prompts, **options)
    pieces = dict.fromkeys(range(4), "")
    for event in client.completions.create(model="demo", prompt=prompts, stream=True, **options):
        for choice in event.choices:
            pieces[choice.index] += choice.text
    assert pieces == {choice.index: choice.text for choice in whole.choices}


def test_offsets_of_log_probabilities_are_places_in_the_text(client: openai.OpenAI) -> None:
    given: Any = {"temperature": 2, "seed": 2, "max_tokens": 20, "logprobs": 2}
    choice: Any = client.completions.create(model="demo", prompt=TEXT, **given).choices[0]
    told = zip(choice.logprobs.tokens, choice.logprobs.text_offset, strict=True)
    whole = [(token, at) for token, at in told if "\ufffd" not in token]
    assert whole
    assert all(choice.text.startswith(token, at) for token, at in whole)


def test_what_is_not_supported_is_refused_by_name(client: openai.OpenAI) -> None:
    more: dict[str, Any]
    for more in ({"echo": True}, {"suffix": "."}, {"best_of": 3}):
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="demo", prompt=TEXT, **more)
        assert caught.value.param == next(iter(more))
    with pytest.raises(openai.BadRequestError, match="3000000"):
        client.completions.create(model="demo", prompt=[1, 3_000_000])
