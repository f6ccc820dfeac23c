"""OpenAI's chat completions, which Google speaks too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.standin.errors import Refused, many, parse, strict
from benchmarks.standin.http import Json
from benchmarks.standin.prompt import Block, Sent, pieces
from benchmarks.standin.rules import Rules
from benchmarks.standin.wires.asked import Asked, Given, rules_of

EXPLICIT = strict(mode=Literal["explicit"])
ROLE = Literal["system", "developer", "user", "assistant"]
NAME = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
FORMATS = Literal["text", "json_object", "json_schema"]
VERBOSITY = Literal["low", "medium", "high"]
EFFORT = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
COUNT = Annotated[int, Field(ge=1)]
SHARED: dict[str, Any] = {
    "model": str,
    "temperature": Annotated[float, Field(ge=0, le=2)] | None,
    "top_p": Annotated[float, Field(ge=0, le=1)] | None,
    "top_logprobs": Annotated[int, Field(ge=0, le=20)] | None,
    "prompt_cache_key": Annotated[str, Field(max_length=64)] | None,
    "prompt_cache_options": strict(
        mode=Literal["implicit", "explicit"] | None, ttl=Literal["30m"] | None
    )
    | None,
    "prompt_cache_retention": Literal["in_memory", "24h"] | None,
    "metadata": dict[str, str] | None,
    "safety_identifier": str | None,
    "service_tier": Literal["auto", "default", "flex", "priority"] | None,
    "store": bool | None,
    "user": str | None,
}
"""What the bodies of both of OpenAI's forms may have."""
TEXT = strict(type=Literal["text"], text=str, prompt_cache_breakpoint=EXPLICIT | None)
SCHEMA = strict(name=NAME, schema=dict[str, Any], strict=bool | None, description=str | None)
CHAT = strict(
    **SHARED,
    messages=many(strict(role=ROLE, content=str | many(TEXT), name=str | None)),
    max_tokens=COUNT | None,
    max_completion_tokens=COUNT | None,
    n=Literal[1] | None,
    seed=int | None,
    stop=str | many(str, 4) | None,
    stream=bool | None,
    stream_options=strict(include_usage=bool) | None,
    response_format=strict(type=FORMATS, json_schema=SCHEMA | None) | None,
    logprobs=bool | None,
    frequency_penalty=float | None,
    presence_penalty=float | None,
    reasoning_effort=EFFORT | None,
    verbosity=VERBOSITY | None,
)


def read(body: bytes) -> Asked:
    """The request in a body. Raises Refused."""
    chat = parse(CHAT, body, "openai")
    rules = rules_of(chat["model"], "openai", "google")
    sent = sent_of(chat, chat["messages"], rules)
    if rules.reasons:
        refuse(chat.get("temperature"), chat.get("top_p"), chat.get("max_tokens"))
    form = chat.get("response_format") or {}
    named = form.get("json_schema")
    if form.get("type") == "json_schema" and named is None:
        raise Refused(400, "Missing required parameter: 'response_format.json_schema'.")
    if named is not None and named["schema"].get("type") != "object":
        said = f"Invalid schema for response_format '{named['name']}': schema must be a JSON "
        said += "Schema of 'type: \"object\"'."
        raise Refused(400, said, "invalid_json_schema", "response_format")
    most = chat.get("max_completion_tokens") or chat.get("max_tokens")
    counts = (chat.get("stream_options") or {}).get("include_usage", False)
    schema = named and named["schema"]
    return Asked(chat["model"], sent, most, schema, bool(chat.get("stream")), counts)


def sent_of(body: Json, messages: Sequence[Json], rules: Rules) -> Sent:
    """The prompt of a body, with the breakpoint that the provider sets unless it is told not to.

    Raises Refused.
    """
    blocks = [block for message in messages for block in _blocks(message, rules)]
    options = body.get("prompt_cache_options")
    marked = any(block.lives is not None for block in blocks)
    if not rules.breakpoints and (marked or options is not None):
        raise unsupported("prompt_cache_breakpoint" if marked else "prompt_cache_options")
    if rules.breakpoints and (options or {}).get("mode") != "explicit":
        blocks[-1] = replace(blocks[-1], lives=rules.lifetime)
    return Sent(tuple(blocks), body.get("prompt_cache_key") or "")


def _blocks(message: Json, rules: Rules) -> Iterator[Block]:
    content = message["content"]
    for place, part in enumerate([{"text": content}] if isinstance(content, str) else content):
        lives = None if part.get("prompt_cache_breakpoint") is None else rules.lifetime
        yield Block(message["role"], part["text"], place == 0, lives)


def refuse(temperature: float | None, top_p: float | None, max_tokens: int | None = None) -> None:
    """Raises Refused for what reasoning models do not take."""
    if max_tokens is not None:
        raise unsupported("max_tokens", " Use 'max_completion_tokens' instead.")
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if value is not None and value != 1:
            raise Refused(
                400,
                f"Unsupported value: '{name}' does not support {value:g} with this model. Only the "
                "default (1) value is supported.",
                "unsupported_value",
                name,
            )


def unsupported(name: str, instead: str = "") -> Refused:
    """The error for a parameter that the model does not know."""
    said = f"Unsupported parameter: '{name}' is not supported with this model.{instead}"
    return Refused(400, said, "unsupported_parameter", name)


def counted(asked: int, answered: int, read: int | None = 0, written: int = 0) -> Json:
    """The usage of a request: tokens by kind. read: None for a provider that does not say."""
    details = {"cached_tokens": read, "cache_write_tokens": written}
    return {
        "prompt_tokens": asked,
        "completion_tokens": answered,
        "total_tokens": asked + answered,
        "prompt_tokens_details": None if read is None else details,
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def completion(
    text: str | None,
    finish: str | None = "stop",
    prompt_tokens: int = 10,
    cached_tokens: int | None = None,
    output_tokens: int = 2,
    written_tokens: int = 0,
    **message: Any,
) -> Json:
    """A whole completion. message: more of its fields."""
    said = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish, "logprobs": None}
    usage = counted(prompt_tokens, output_tokens, cached_tokens, written_tokens)
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "stand-in"}
    return {**head, "choices": [choice], "usage": usage}


def chunk(finish: str | None = None, **delta: Any) -> Json:
    """A part of a streamed completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0}
    return {**head, "model": "stand-in", "choices": [choice]}


def chunks(words: Iterable[str], finish: str, usage: Json, word: str = "content") -> list[Json]:
    """A whole streamed completion, with its usage at the end. word: what the words are."""
    said = [chunk(**{word: each}) for each in words]
    last = {**chunk(), "choices": [], "usage": usage}
    return [chunk(role="assistant", content=""), *said, chunk(finish), last]


def streamed(*words: str, finish: str = "stop", cached_tokens: int | None = None) -> list[Json]:
    """A whole streamed completion: 10 tokens asked, one a word."""
    return chunks(words, finish, counted(10, len(words), cached_tokens))


def reply(asked: Asked, given: Given) -> Json:
    """A whole completion."""
    text, refusal = given.parts
    of, finish = given.reading, "length" if given.cut else "stop"
    tokens = (of.total, of.read, given.answered, of.written)
    return completion(text, finish, *tokens, refusal=refusal) | _head(asked, given)


def events(asked: Asked, given: Given) -> Iterator[tuple[str | None, Json | str]]:
    """(name, data) of the events of a stream."""
    of = given.reading
    usage = counted(of.total, given.answered, of.read, of.written)
    word = "refusal" if given.refused else "content"
    parts = chunks(pieces(given.text), "length" if given.cut else "stop", usage, word)
    for each in parts if asked.counts else parts[:-1]:
        yield None, each | _head(asked, given)
    yield None, "[DONE]"


def _head(asked: Asked, given: Given) -> Json:
    return {"id": f"chatcmpl-{given.number}", "created": given.seconds, "model": asked.model}
