"""What the OpenAPI document says of answers."""

from __future__ import annotations

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


class TokenCount(BaseModel):
    """Tokens of all messages as the model reads them."""

    input_tokens: int
