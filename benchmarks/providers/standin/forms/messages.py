"""Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.providers.standin.errors import Refused, Strict, parse
from benchmarks.providers.standin.forms.asked import Asked, Given, Json, rules_of
from benchmarks.providers.standin.prompt import Block, Sent
from benchmarks.providers.standin.rules import HOUR
from benchmarks.providers.standin.tokens import pieces


class CacheControl(Strict):
    """Ends a prefix to be cached."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"

    @property
    def lives(self) -> float:
        """Seconds after the last use."""
        return HOUR if self.ttl == "1h" else 300.0


class Text(Strict):
    """A text block."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None


class Message(Strict):
    """A message."""

    role: Literal["user", "assistant"]
    content: str | Annotated[list[Text], Field(min_length=1)]


class Format(Strict):
    """A schema of the answer."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Strict):
    """The form of the answer, and how much effort it takes."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: Format | None = None


class Thinking(Strict):
    """Whether the model thinks."""

    type: Literal["adaptive", "disabled"]
    display: Literal["omitted", "summarized"] | None = None


class Metadata(Strict):
    """Who asks."""

    user_id: str | None = None


class Messages(Strict):
    """The body of a request."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)]
    system: str | list[Text] | None = None
    cache_control: CacheControl | None = None
    stop_sequences: list[str] | None = None
    stream: bool = False
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: int | None = None
    top_p: float | None = None
    output_config: OutputConfig | None = None
    thinking: Thinking | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None


def read(body: bytes) -> Asked:
    """The request in a body. Raises Refused."""
    asked = parse(Messages, body, "anthropic")
    rules = rules_of(asked.model, ("anthropic",))
    for name in ("temperature", "top_p", "top_k"):
        value = getattr(asked, name)
        if rules.reasons and value is not None and (name, value) != ("temperature", 1):
            raise Refused(400, f"`{name}` is deprecated for this model.")
    blocks = list(_blocks(asked))
    if asked.cache_control is not None:
        blocks[-1] = replace(blocks[-1], lives=asked.cache_control.lives)
    _check(blocks, rules.breakpoints)
    config = asked.output_config
    form = None if config is None else config.format
    schema = None if form is None else form.schema_
    return Asked(asked.model, Sent(tuple(blocks)), asked.max_tokens, schema, asked.stream)


def _blocks(asked: Messages) -> Iterator[Block]:
    if asked.system:
        yield from _of("system", asked.system)
    for message in asked.messages:
        yield from _of(message.role, message.content)


def _of(role: str, content: str | list[Text]) -> Iterator[Block]:
    if isinstance(content, str):
        if not content.strip():
            raise Refused(400, "messages: text content blocks must contain non-whitespace text")
        yield Block(role, content, begins=True)
        return
    for place, part in enumerate(content):
        if not part.text.strip():
            raise Refused(400, "messages: text content blocks must contain non-whitespace text")
        control = part.cache_control
        yield Block(role, part.text, place == 0, None if control is None else control.lives)


def _check(blocks: list[Block], most: int) -> None:
    """Raises Refused for more marks than the model takes, or in another order of lifetimes."""
    lives = [block.lives for block in blocks if block.lives is not None]
    if len(lives) > most:
        raise Refused(
            400,
            f"A maximum of {most} blocks with cache_control may be provided. Found {len(lives)}.",
        )
    if sorted(lives, reverse=True) != lives:
        raise Refused(
            400, "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
        )


def counted(uncached: int, answered: int, read: int = 0, written: int = 0, hour: int = 0) -> Json:
    """The usage of a request: tokens by kind. hour: written for an hour."""
    kept = {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": hour}
    return {
        "input_tokens": uncached,
        "cache_creation_input_tokens": written + hour,
        "cache_read_input_tokens": read,
        "cache_creation": kept,
        "output_tokens": answered,
        "service_tier": "standard",
    }


def message(text: str | None, reason: str, usage: Json, thought: str | None = None) -> Json:
    """A whole message. thought: comes before the answer."""
    content: list[Json] = []
    if thought is not None:
        content.append({"type": "thinking", "thinking": thought, "signature": "sig1"})
    if text is not None:
        content.append({"type": "text", "text": text})
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "stand-in"}
    ends = {"stop_reason": reason, "stop_sequence": None, "usage": usage}
    return {**head, "content": content, **ends}


def _usage(given: Given) -> Json:
    of = given.reading
    return counted(of.uncached, given.answered, of.read, of.written, of.written_hour)


def reply(asked: Asked, given: Given) -> Json:
    """A whole message, with a thought whose text is not shown."""
    text, thought = (None, None) if given.refused else (given.text, "")
    found = message(text, _reason(given), _usage(given), thought)
    return found | {"id": f"msg_{given.number}", "model": asked.model}


def _reason(given: Given) -> str:
    if given.refused:
        return "refusal"
    return "max_tokens" if given.cut else "end_turn"


def events(asked: Asked, given: Given) -> Iterator[tuple[str | None, Json | str]]:
    """(name, data) of the events of a stream."""
    begun = {**reply(asked, given), "content": [], "stop_reason": None}
    begun["usage"] = {**_usage(given), "output_tokens": 1}
    found: list[Json] = [{"type": "message_start", "message": begun}]
    if not given.refused:
        block = {"type": "text", "text": ""}
        found.append({"type": "content_block_start", "index": 0, "content_block": block})
        for piece in pieces(given.text):
            delta = {"type": "text_delta", "text": piece}
            found.append({"type": "content_block_delta", "index": 0, "delta": delta})
        found.append({"type": "content_block_stop", "index": 0})
    ended = {"stop_reason": _reason(given), "stop_sequence": None}
    found.append({"type": "message_delta", "delta": ended, "usage": _usage(given)})
    found.append({"type": "message_stop"})
    for each in found:
        yield each["type"], each
