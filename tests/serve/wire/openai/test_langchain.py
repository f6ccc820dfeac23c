"""LangChain's ChatOpenAI as a client."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from tests.serve.conftest import Running

pytestmark = pytest.mark.long

REVIEW = "Is the review positive?\nreviewcontent: A wonderful film with a strong plot.\n"


class Review(BaseModel):
    positive: Literal["Yes", "No"]


@pytest.fixture
def chat(server: Running) -> ChatOpenAI:
    options: dict[str, Any] = {"max_tokens": 20}
    return ChatOpenAI(
        model="demo",
        base_url=f"{server.url}/v1",
        api_key=SecretStr("none"),
        temperature=0,
        **options,
    )


def test_invoke_stream_and_batch_agree(chat: ChatOpenAI) -> None:
    found = chat.invoke(REVIEW)
    assert found.content == "Yes"
    assert found.usage_metadata is not None
    assert found.usage_metadata["output_tokens"] == 1
    assert "".join(str(piece.content) for piece in chat.stream(REVIEW)) == "Yes"
    assert [each.content for each in chat.batch([REVIEW] * 3)] == ["Yes"] * 3


def test_structured_output_is_of_the_class(chat: ChatOpenAI) -> None:
    structured = chat.with_structured_output(Review, method="json_schema")
    assert isinstance(structured.invoke(REVIEW), Review)
