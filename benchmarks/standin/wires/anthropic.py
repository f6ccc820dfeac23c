"""Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.standin.errors import Refused, many, parse, strict
from benchmarks.standin.http import Json
from benchmarks.standin.prompt import Block, Sent, pieces
from benchmarks.standin.rules import HOUR
from benchmarks.standin.wires.asked import Asked, Given, rules_of

CONTROL = strict(type=Literal["ephemeral"], ttl=Literal["5m", "1h"] | None)
TEXT = strict(type=Literal["text"], text=str, cache_control=CONTROL | None)
FORMAT = strict(type=Literal["json_schema"], schema=dict[str, Any])
EFFORT = Literal["low", "medium", "high", "xhigh", "max"]
MESSAGES = strict(
    model=str,
    messages=many(strict(role=Literal["user", "assistant"], content=str | many(TEXT))),
    max_tokens=Annotated[int, Field(ge=1)],
    system=str | many(TEXT) | None,
    cache_control=CONTROL | None,
    stop_sequences=list[str] | None,
    stream=bool | None,
    temperature=Annotated[float, Field(ge=0, le=1)] | None,
    top_k=int | None,
    top_p=float | None,
    output_config=strict(effort=EFFORT | None, format=FORMAT | None) | None,
    thinking=strict(
        type=Literal["adaptive", "disabled"], display=Literal["omitted", "summarized"] | None
    )
    | None,
    metadata=strict(user_id=str | None) | None,
    service_tier=Literal["auto", "standard_only"] | None,
)


def read(body: bytes) -> Asked:
    """The request in a body. Raises Refused."""
    asked = parse(MESSAGES, body, "anthropic")
    rules = rules_of(asked["model"], "anthropic")
    for name in ("temperature", "top_p", "top_k"):
        value = asked.get(name)
        if rules.reasons and value is not None and (name, value) != ("temperature", 1):
            raise Refused(400, f"`{name}` is deprecated for this model.")
    system = [{"role": "system", "content": asked["system"]}] if asked.get("system") else []
    blocks = [block for each in [*system, *asked["messages"]] for block in _blocks(each)]
    if asked.get("cache_control") is not None:
        blocks[-1] = replace(blocks[-1], lives=_lives(asked))
    _check(blocks, rules.breakpoints)
    schema = ((asked.get("output_config") or {}).get("format") or {}).get("schema")
    sent, streams = Sent(tuple(blocks)), bool(asked.get("stream"))
    return Asked(asked["model"], sent, asked["max_tokens"], schema, streams)


def _blocks(message: Json) -> Iterator[Block]:
    content = message["content"]
    for place, part in enumerate([{"text": content}] if isinstance(content, str) else content):
        if not part["text"].strip():
            raise Refused(400, "messages: text content blocks must contain non-whitespace text")
        yield Block(message["role"], part["text"], place == 0, _lives(part))


def _lives(part: Json) -> float | None:
    """Seconds after its last use for which the prefix up to here is kept, if it is marked."""
    control = part.get("cache_control")
    return None if control is None else HOUR if control.get("ttl") == "1h" else 300.0


def _check(blocks: list[Block], most: int) -> None:
    """Raises Refused for more marks than the model takes, or in another order of lifetimes."""
    lives = [block.lives for block in blocks if block.lives is not None]
    message = f"A maximum of {most} blocks with cache_control may be provided. Found {len(lives)}."
    if len(lives) > most:
        raise Refused(400, message)
    if sorted(lives, reverse=True) != lives:
        raise Refused(
            400, "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
        )


def message(
    text: str | None,
    stop_reason: str = "end_turn",
    cached_tokens: int = 0,
    written_tokens: int = 0,
    thought: str | None = None,
    uncached: int = 10,
    answered: int = 2,
    hour: int = 0,
    **more: Any,
) -> Json:
    """A whole message. thought: comes before the answer. hour: tokens written for an hour."""
    content: list[Json] = []
    if thought is not None:
        content.append({"type": "thinking", "thinking": thought, "signature": "sig1"})
    if text is not None:
        content.append({"type": "text", "text": text})
    kept = {"ephemeral_5m_input_tokens": written_tokens, "ephemeral_1h_input_tokens": hour}
    usage = {
        "input_tokens": uncached,
        "cache_creation_input_tokens": written_tokens + hour,
        "cache_read_input_tokens": cached_tokens,
        "cache_creation": kept,
        "output_tokens": answered,
        "service_tier": "standard",
    }
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "stand-in"}
    ends = {"stop_reason": stop_reason, "stop_sequence": None, "usage": usage}
    return {**head, "content": content, **ends, **more}


def reply(asked: Asked, given: Given) -> Json:
    """A whole message, with a thought whose text is not shown."""
    of, thought = given.reading, None if given.refused else ""
    reason = "refusal" if given.refused else "max_tokens" if given.cut else "end_turn"
    return message(
        given.parts[0], reason, of.read, of.written, thought, of.uncached, given.answered,
        of.written_hour, id=f"msg_{given.number}", model=asked.model,
    )  # fmt: skip


def events(asked: Asked, given: Given) -> Iterator[tuple[str | None, Json | str]]:
    """(name, data) of the events of a stream."""
    whole = reply(asked, given)
    begun = {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    events_sent: list[Json] = [{"type": "message_start", "message": whole | begun}]
    if not given.refused:
        block = {"type": "text", "text": ""}
        events_sent.append({"type": "content_block_start", "index": 0, "content_block": block})
        for piece in pieces(given.text):
            delta = {"type": "text_delta", "text": piece}
            events_sent.append({"type": "content_block_delta", "index": 0, "delta": delta})
        events_sent.append({"type": "content_block_stop", "index": 0})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events_sent.append({"type": "message_delta", "delta": ended, "usage": whole["usage"]})
    events_sent.append({"type": "message_stop"})
    for each in events_sent:
        yield each["type"], each
