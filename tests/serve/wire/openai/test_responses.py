"""Responses, with OpenAI's client."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

REVIEW = "Is the review positive?\nreviewcontent: A wonderful film with a strong plot.\n"
STORY = "Tell me about the films that you have seen, and the people in them."


def test_an_input_is_answered_like_a_chat(client: openai.OpenAI) -> None:
    found = client.responses.create(model="demo", input=REVIEW, temperature=0)
    assert (found.output_text, found.status) == ("Yes", "completed")
    assert found.model_dump()["store"] is False


def test_instructions_and_messages_are_one_chat(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(
        model="demo",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Yes"},
            {"role": "user", "content": REVIEW},
        ],
        temperature=0,
    )
    found = client.responses.create(
        model="demo",
        instructions="Be brief.",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Yes", "annotations": []}],
            },
            {"role": "user", "content": REVIEW},
        ],
        temperature=0,
    )
    assert chat.usage is not None
    assert found.usage is not None
    assert found.usage.input_tokens == chat.usage.prompt_tokens
    assert found.output_text == chat.choices[0].message.content
    assert found.usage.input_tokens_details.cached_tokens > 0


def test_a_cut_response_is_incomplete(client: openai.OpenAI) -> None:
    found = client.responses.create(model="demo", input=STORY, max_output_tokens=1, temperature=2)
    assert found.status == "incomplete"
    assert found.incomplete_details is not None
    assert found.incomplete_details.reason == "max_output_tokens"
    assert found.usage is not None
    assert found.usage.output_tokens == 1


@pytest.mark.parametrize("most", [3, 200])
def test_events_come_in_the_order_that_the_client_reads(client: openai.OpenAI, most: int) -> None:
    events = list(
        client.responses.create(
            model="demo", input=STORY, max_output_tokens=most, temperature=1.5, stream=True
        )
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) <= {"response.output_text.delta"}
    last: Any = events[-1]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{last.response.status}",
    ]
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == last.response.output_text


def test_the_clients_own_stream_helper_reads_them(client: openai.OpenAI) -> None:
    with client.responses.stream(model="demo", input=REVIEW, temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "Yes"


class Review(BaseModel):
    positive: Literal["Yes", "No"]


def test_answers_follow_a_schema(client: openai.OpenAI) -> None:
    found = client.responses.parse(model="demo", input=REVIEW, text_format=Review, temperature=2)
    assert isinstance(found.output_parsed, Review)
    assert json.loads(found.output_text) == found.output_parsed.model_dump()


@pytest.mark.parametrize(
    "more",
    [
        {"store": True},
        {"previous_response_id": "resp_1"},
        {"tools": [{"type": "web_search"}]},
        {"background": True},
        {"conversation": "conv_1"},
        {"reasoning": {"effort": "high"}},
        {"include": ["message.output_text.logprobs"]},
        {"truncation": "auto"},
    ],
)
def test_what_is_not_supported_is_refused_by_name(client: openai.OpenAI, more: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="demo", input=REVIEW, **more)
    assert caught.value.param == next(iter(more))
