"""OpenAI's Responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.providers.standin.errors import Refused, Strict, parse
from benchmarks.providers.standin.forms.asked import Asked, Given, Json, rules_of
from benchmarks.providers.standin.forms.chat import OpenAI, Said, Written, refuse


class Part(Written):
    """A text of a message."""

    type: Literal["input_text", "output_text"]


class Message(Said):
    """A message."""

    content: str | Annotated[list[Part], Field(min_length=1)]
    type: Literal["message"] = "message"


class Format(Strict):
    """What the answer must be."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None
    description: str | None = None


class Text(Strict):
    """The form of the answer."""

    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Strict):
    """How much the model reasons."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class Responses(OpenAI):
    """The body of a request."""

    input: str | Annotated[list[Message], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=16)] | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    stream: Literal[False] | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None


def read(body: bytes) -> Asked:
    """The request in a body. Raises Refused."""
    asked = parse(Responses, body, "openai")
    rules = rules_of(asked.model, ("openai",))
    if rules.reasons:
        refuse(asked.temperature, asked.top_p)
    given = asked.input
    messages = [Message(role="user", content=given)] if isinstance(given, str) else given
    if asked.instructions is not None:
        messages = [Message(role="developer", content=asked.instructions), *messages]
    form = None if asked.text is None else asked.text.format
    if form is not None and form.type == "json_schema" and form.schema_ is None:
        raise Refused(400, "Missing required parameter: 'text.format.schema'.")
    sent = asked.sent(messages, rules)
    schema = None if form is None else form.schema_
    return Asked(asked.model, sent, asked.max_output_tokens, schema)


def response(
    text: str | None,
    status: str = "completed",
    refusal: str | None = None,
    *,
    asked: int = 0,
    answered: int = 0,
    read: int = 0,
    written: int = 0,
    reasons: bool = False,
) -> Json:
    """A whole response. refusal: in place of a text. asked, answered, read, written: tokens."""
    part: Json = {"type": "output_text", "text": text, "annotations": []}
    if refusal is not None:
        part = {"type": "refusal", "refusal": refusal}
    said = {"type": "message", "id": "msg_1", "status": status, "role": "assistant"}
    reasoning: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    has_message = text is not None or refusal is not None
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": "stand-in",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "output": [reasoning] * reasons + [{**said, "content": [part]}] * has_message,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": asked,
            "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
            "output_tokens": answered,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": asked + answered,
        },
    }


def reply(asked: Asked, given: Given) -> Json:
    """A whole response."""
    reading = given.reading
    text, refusal = (None, given.text) if given.refused else (given.text, None)
    found = response(
        text,
        "incomplete" if given.cut else "completed",
        refusal,
        asked=reading.total,
        answered=given.answered,
        read=reading.read,
        written=reading.written,
        reasons=True,
    )
    cut = {"reason": "max_output_tokens"} if given.cut else None
    head = {"id": f"resp_{given.number}", "created_at": given.seconds, "model": asked.model}
    return found | head | {"incomplete_details": cut}
