"""Responses and plain completions, with OpenAI's client."""

from __future__ import annotations

import json
from typing import Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.cases import cases
from tests.serve.conftest import Running

REVIEW = "Is the review positive?\nreviewcontent: A wonderful film with a strong plot.\n"
STORY = "Tell me about the films that you have seen, and the people in them."


def test_an_input_is_answered_like_a_chat(client: openai.OpenAI) -> None:
    found = client.responses.create(model="demo", input=REVIEW, temperature=0)
    assert (found.output_text, found.status) == ("Yes", "completed")
    assert found.model_dump()["store"] is False


def test_instructions_and_messages_are_one_chat(client: openai.OpenAI) -> None:
    said: Any = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": REVIEW},
    ]
    parts = [{"type": "output_text", "text": "Yes", "annotations": []}]
    given: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        said[1] | {"type": "message", "id": "m", "status": "completed", "content": parts},
        said[2],
    ]
    system: Any = {"role": "system", "content": "Be brief."}
    usual: Any = {"model": "demo", "temperature": 0}
    chat: Any = client.chat.completions.create(messages=[system, *said], **usual)
    found: Any = client.responses.create(instructions="Be brief.", input=given, **usual)
    assert found.usage.input_tokens == chat.usage.prompt_tokens
    assert found.output_text == chat.choices[0].message.content
    assert found.usage.input_tokens_details.cached_tokens > 0


def test_a_cut_response_is_incomplete(client: openai.OpenAI) -> None:
    given: Any = {"input": STORY, "max_output_tokens": 1, "temperature": 2}
    found: Any = client.responses.create(model="demo", **given)
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert found.usage.output_tokens == 1


@pytest.mark.parametrize("most", [3, 200])
def test_events_come_in_the_order_that_the_client_reads(client: openai.OpenAI, most: int) -> None:
    asked: Any = {"max_output_tokens": most, "temperature": 1.5, "stream": True}
    events: Any = list(client.responses.create(model="demo", input=STORY, **asked))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    begin = ["created", "in_progress", "output_item.added", "content_part.added"]
    end = ["output_text.done", "content_part.done", "output_item.done"]
    assert kinds[:4] == begin
    assert set(kinds[4:-4]) <= {"output_text.delta"}
    last = events[-1].response
    assert kinds[-4:] == [*end, last.status]
    assert "".join(event.delta for event in events[4:-4]) == last.output_text


class Review(BaseModel):
    positive: Literal["Yes", "No"]


def test_answers_follow_a_schema(client: openai.OpenAI) -> None:
    found = client.responses.parse(model="demo", input=REVIEW, text_format=Review, temperature=2)
    assert isinstance(found.output_parsed, Review)
    assert json.loads(found.output_text) == found.output_parsed.model_dump()
    with client.responses.stream(model="demo", input=REVIEW, temperature=0) as stream:
        assert list(stream)
        assert stream.get_final_response().output_text == "Yes"


@pytest.mark.parametrize(("more", "param"), cases(__file__))
def test_what_is_not_supported_is_named(client: openai.OpenAI, more: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="demo", input=REVIEW, **more)
    assert caught.value.param == param


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
    for more in ({"suffix": "."}, {"best_of": 3}):
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="demo", prompt=TEXT, **more)
        assert caught.value.param == next(iter(more))
    with pytest.raises(openai.BadRequestError, match="3000000"):
        client.completions.create(model="demo", prompt=[1, 3_000_000])
