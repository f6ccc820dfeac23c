"""Replies of providers as tests write them, and the stand-in that sends them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.providers.standin.errors import Refused
from benchmarks.providers.standin.forms import chat, messages, responses
from benchmarks.providers.standin.forms.asked import Json
from benchmarks.providers.standin.http import Response
from benchmarks.providers.standin.scripted import (
    Script,
    Scripted,
    Silence,
    Stream,
    serving,
    started,
)

__all__ = ["Silence", "Stream", "serving", "started"]
Body = Json
Reply = Response
ChatServer = Scripted
AnswerFunction = Script
Serve = Callable[[AnswerFunction], ChatServer]
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def completion(
    text: str | None,
    finish: str | None = "stop",
    prompt_tokens: int = 10,
    cached_tokens: int | None = None,
    output_tokens: int = 2,
    **message: Any,
) -> Reply:
    """A whole chat completion."""
    usage = chat.counted(prompt_tokens, output_tokens, cached_tokens)
    return Reply(chat.completion(text, finish, usage, **message))


def response(
    text: str | None,
    status: str = "completed",
    cached_tokens: int = 0,
    reasoned: bool = False,
    refusal: str | None = None,
    **more: Any,
) -> Reply:
    """A whole reply of the Responses API; refusal: in place of a text."""
    found = responses.response(
        text, status, refusal, asked=10, answered=2, read=cached_tokens, reasons=reasoned
    )
    return Reply(found | more)


def message(
    text: str | None,
    stop_reason: str = "end_turn",
    cached_tokens: int = 0,
    written_tokens: int = 0,
    thought: str | None = None,
) -> Reply:
    """A whole message of Anthropic's, of 10 prompt tokens that no cache has a part in."""
    usage = messages.counted(10, 2, cached_tokens, written_tokens)
    return Reply(messages.message(text, stop_reason, usage, thought))


def part(finish: str | None = None, **delta: Any) -> Body:
    """One part of a streamed completion."""
    return chat.chunk(delta, finish)


def streamed(*words: str, finish: str = "stop", cached_tokens: int | None = None) -> list[Body]:
    """A whole streamed completion, with its usage at the end: 10 tokens asked, one a word."""
    return [
        part(role="assistant", content=""),
        *(part(content=word) for word in words),
        part(finish=finish),
        chat.last_chunk(chat.counted(10, len(words), cached_tokens)),
    ]


def failure(
    status: int, message: str, code: str | None = None, param: str | None = None, **headers: str
) -> Reply:
    """An error in the form that OpenAI gives it."""
    return Refused(status, message, code, param, _named(headers)).reply("openai")


def anthropic_failure(status: int, message: str, **headers: str) -> Reply:
    """An error in the form that Anthropic gives it."""
    return Refused(status, message, headers=_named(headers)).reply("anthropic")


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def question(body: Body) -> str:
    """The last message."""
    return str((body["input"] if "input" in body else body["messages"])[-1]["content"])


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that other threads or processes bring about."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "did not come about within a minute"
        time.sleep(0.01)
