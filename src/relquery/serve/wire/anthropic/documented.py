"""What the OpenAPI document says of answers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel


class Text(BaseModel):
    """The text of the answer."""

    type: Literal["text"]
    text: str
    citations: None


class CacheCreation(BaseModel):
    """Tokens that were computed and are kept, by how long."""

    ephemeral_5m_input_tokens: int
    ephemeral_1h_input_tokens: int


class Usage(BaseModel):
    """Tokens after the last breakpoint, up to it (computed or read from the cache), and drawn."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    cache_creation: CacheCreation
    output_tokens: int
    service_tier: Literal["standard"]


class Message(BaseModel):
    """An answer."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Text]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "model_context_window_exceeded"]
    stop_sequence: str | None
    usage: Usage


class ModelInfo(BaseModel):
    """A model. created_at: when the server began. max_input_tokens leaves room for one token."""

    id: str
    type: Literal["model"] = "model"
    display_name: str
    created_at: datetime
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int
    max_tokens: int


class ModelPage(BaseModel):
    """A page of models."""

    data: list[ModelInfo]
    first_id: str | None
    last_id: str | None
    has_more: bool


class TokenCount(BaseModel):
    """Tokens of all messages as the model reads them."""

    input_tokens: int
