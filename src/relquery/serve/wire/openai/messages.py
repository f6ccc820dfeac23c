"""Chat messages as a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from relquery.prompt import Prompt, Role, Span
from relquery.serve.body import NONE_OF, NOTHING, Body, Inner
from relquery.serve.errors import HttpError, not_supported

TEXTS = ("text", "input_text", "output_text")


class TextPart(Inner):
    """Text in a message. prompt_cache_breakpoint: all prefixes are cached, with or without it."""

    type: Literal["text", "input_text", "output_text"]
    text: str
    prompt_cache_breakpoint: Any = None
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, given: Any) -> Any:
        """Other parts are refused by the name of their type."""
        kind = given.get("type") if isinstance(given, dict) else None
        if isinstance(kind, str) and kind not in TEXTS:
            raise not_supported(f"content of type {kind}", "Send text.")
        return given


class ChatMessage(Body):
    """A message of a chat. Its parts are one message."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {
        "name": NOTHING,
        "tool_calls": NONE_OF,
        "function_call": NOTHING,
        "refusal": NOTHING,
        "audio": NOTHING,
        "annotations": NONE_OF,
    }
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1)]


_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}


def prompt_of(messages: list[ChatMessage]) -> Prompt:
    """A chat as a prompt: one span for each part. Raises HttpError for a chat without text."""
    spans: list[Span] = []
    for message in messages:
        texts = [message.content] if isinstance(message.content, str) else _texts(message.content)
        role = _ROLES[message.role]
        spans += (Span(text, role, begins=at == 0) for at, text in enumerate(texts))
    if not any(span.content for span in spans):
        raise HttpError(400, "The messages contain no text.", "invalid_request", "messages")
    return tuple(spans)


def _texts(parts: list[TextPart]) -> list[str]:
    return [part.text for part in parts]
