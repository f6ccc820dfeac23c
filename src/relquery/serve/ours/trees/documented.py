"""What the OpenAPI document says of answers to span queries."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from relquery.serve.wire.openai.types import Usage


class Said(BaseModel):
    """What the model says."""

    role: Literal["assistant"]
    content: str


class Answer(BaseModel):
    """One answer. message: of a chat completion. text: of a text completion."""

    index: int
    message: Said | None = None
    text: str | None = None
    logprobs: None
    finish_reason: Literal["stop", "length"]


class Completed(BaseModel):
    """The answers to a query."""

    id: str
    object: Literal["chat.completion", "text_completion"]
    created: int
    model: str
    choices: list[Answer]
    usage: Usage


class Prepared(BaseModel):
    """prepared: texts whose states are computed."""

    object: Literal["query.prepared"]
    prepared: int
