"""OpenAI's Responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.standin.errors import Refused, many, parse, strict
from benchmarks.standin.http import Json
from benchmarks.standin.wires.asked import Asked, Given, rules_of
from benchmarks.standin.wires.openai_chat import (
    EFFORT,
    EXPLICIT,
    FORMATS,
    ROLE,
    SHARED,
    VERBOSITY,
    refuse,
    sent_of,
)

PART = strict(
    type=Literal["input_text", "output_text"], text=str, prompt_cache_breakpoint=EXPLICIT | None
)
MESSAGE = strict(role=ROLE, content=str | many(PART), type=Literal["message"] | None)
FORMAT = strict(
    type=FORMATS,
    name=str | None,
    schema=dict[str, Any] | None,
    strict=bool | None,
    description=str | None,
)
SUMMARY = Literal["auto", "concise", "detailed"]
RESPONSES = strict(
    **SHARED,
    input=str | many(MESSAGE),
    instructions=str | None,
    max_output_tokens=Annotated[int, Field(ge=16)] | None,
    text=strict(format=FORMAT | None, verbosity=VERBOSITY | None) | None,
    reasoning=strict(effort=EFFORT | None, summary=SUMMARY | None) | None,
    stream=Literal[False] | None,
    include=list[str] | None,
    truncation=Literal["auto", "disabled"] | None,
)


def read(body: bytes) -> Asked:
    """The request in a body. Raises Refused."""
    asked = parse(RESPONSES, body, "openai")
    rules = rules_of(asked["model"], "openai")
    if rules.reasons:
        refuse(asked.get("temperature"), asked.get("top_p"))
    given, told = asked["input"], asked.get("instructions")
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if told is not None:
        messages = [{"role": "developer", "content": told}, *messages]
    form = (asked.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema" and form.get("schema") is None:
        raise Refused(400, "Missing required parameter: 'text.format.schema'.")
    sent = sent_of(asked, messages, rules)
    return Asked(asked["model"], sent, asked.get("max_output_tokens"), form.get("schema"))


def response(
    text: str | None,
    status: str = "completed",
    cached_tokens: int = 0,
    reasoned: bool = False,
    refusal: str | None = None,
    asked: int = 10,
    answered: int = 2,
    written: int = 0,
    **more: Any,
) -> Json:
    """A whole response. refusal: in place of a text. asked, answered, written: tokens."""
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
        "output": [reasoning] * reasoned + [{**said, "content": [part]}] * has_message,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": asked,
            "input_tokens_details": {"cached_tokens": cached_tokens, "cache_write_tokens": written},
            "output_tokens": answered,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": asked + answered,
        },
        **more,
    }


def reply(asked: Asked, given: Given) -> Json:
    """A whole response."""
    text, refusal = given.parts
    status, of = "incomplete" if given.cut else "completed", given.reading
    return response(
        text, status, of.read, True, refusal, of.total, given.answered, of.written,
        id=f"resp_{given.number}", created_at=given.seconds, model=asked.model,
        incomplete_details={"reason": "max_output_tokens"} if given.cut else None,
    )  # fmt: skip
