"""OpenAI's chat completions, which Google speaks too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.providers.standin.errors import Refused, Strict, parse
from benchmarks.providers.standin.forms.asked import Asked, Given, Json, rules_of
from benchmarks.providers.standin.prompt import Block, Sent
from benchmarks.providers.standin.rules import Rules
from benchmarks.providers.standin.tokens import pieces


class Breakpoint(Strict):
    """Ends a prefix to be cached."""

    mode: Literal["explicit"]


class Written(Strict):
    """A text of a message, in either form."""

    text: str
    prompt_cache_breakpoint: Breakpoint | None = None


class Said(Strict):
    """A message, in either form."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Sequence[Written]


class Part(Written):
    """A text of a message."""

    type: Literal["text"]


class Message(Said):
    """A message."""

    content: str | Annotated[list[Part], Field(min_length=1)]
    name: str | None = None


class Schema(Strict):
    """A named schema."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(Strict):
    """What the answer must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None


class StreamOptions(Strict):
    """include_usage: whether the last event has the usage."""

    include_usage: bool = False


class CacheOptions(Strict):
    """mode: whether a breakpoint is set at the end of the newest message."""

    mode: Literal["implicit", "explicit"] = "implicit"
    ttl: Literal["30m"] = "30m"


class OpenAI(Strict):
    """What the bodies of both of OpenAI's forms have."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    prompt_cache_key: Annotated[str, Field(max_length=64)] | None = None
    prompt_cache_options: CacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    store: bool | None = None
    user: str | None = None

    def sent(self, messages: Sequence[Said], rules: Rules) -> Sent:
        """The prompt, with the breakpoint that the provider sets unless it is told not to.

        Raises Refused.
        """
        blocks = [block for message in messages for block in _blocks(message, rules)]
        options = self.prompt_cache_options
        marked = any(block.lives is not None for block in blocks)
        if not rules.breakpoints and (marked or options is not None):
            raise unsupported("prompt_cache_breakpoint" if marked else "prompt_cache_options")
        if rules.breakpoints and (options is None or options.mode == "implicit"):
            blocks[-1] = replace(blocks[-1], lives=rules.lifetime)
        return Sent(tuple(blocks), self.prompt_cache_key or "")


class Chat(OpenAI):
    """The body of a request."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Literal[1] | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


def read(body: bytes) -> Asked:
    """The request in a body. Raises Refused."""
    chat = parse(Chat, body, "openai")
    rules = rules_of(chat.model, ("openai", "google"))
    sent = chat.sent(chat.messages, rules)
    if rules.reasons:
        refuse(chat.temperature, chat.top_p, chat.max_tokens)
    form = chat.response_format
    named = None if form is None else form.json_schema
    if form is not None and form.type == "json_schema" and named is None:
        raise Refused(400, "Missing required parameter: 'response_format.json_schema'.")
    if named is not None and named.schema_.get("type") != "object":
        raise Refused(
            400,
            f"Invalid schema for response_format '{named.name}': schema must be a JSON Schema of "
            "'type: \"object\"'.",
            "invalid_json_schema",
            "response_format",
        )
    most = chat.max_completion_tokens or chat.max_tokens
    counts = chat.stream_options is not None and chat.stream_options.include_usage
    schema = None if named is None else named.schema_
    return Asked(chat.model, sent, most, schema, chat.stream, counts)


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


def _blocks(message: Said, rules: Rules) -> Iterator[Block]:
    if isinstance(message.content, str):
        yield Block(message.role, message.content, begins=True)
        return
    for place, part in enumerate(message.content):
        lives = None if part.prompt_cache_breakpoint is None else rules.lifetime
        yield Block(message.role, part.text, place == 0, lives)


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


def completion(text: str | None, finish: str | None, usage: Json, **message: Any) -> Json:
    """A whole completion. message: more of its fields."""
    said = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish, "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "stand-in"}
    return {**head, "choices": [choice], "usage": usage}


def chunk(delta: Json, finish: str | None = None) -> Json:
    """A part of a streamed completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0}
    return {**head, "model": "stand-in", "choices": [choice]}


def last_chunk(usage: Json) -> Json:
    """The part of a streamed completion that has its usage."""
    return {**chunk({}), "choices": [], "usage": usage}


def _usage(given: Given) -> Json:
    reading = given.reading
    return counted(reading.total, given.answered, reading.read, reading.written)


def reply(asked: Asked, given: Given) -> Json:
    """A whole completion."""
    text, refusal = (None, given.text) if given.refused else (given.text, None)
    finish = "length" if given.cut else "stop"
    return completion(text, finish, _usage(given), refusal=refusal) | _head(asked, given)


def events(asked: Asked, given: Given) -> Iterator[tuple[str | None, Json | str]]:
    """(name, data) of the events of a stream."""
    head = _head(asked, given)
    word = "refusal" if given.refused else "content"
    deltas: list[tuple[Json, str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({word: piece}, None) for piece in pieces(given.text)]
    deltas.append(({}, "length" if given.cut else "stop"))
    for delta, finish in deltas:
        yield None, chunk(delta, finish) | head
    if asked.counts:
        yield None, last_chunk(_usage(given)) | head
    yield None, "[DONE]"


def _head(asked: Asked, given: Given) -> Json:
    return {"id": f"chatcmpl-{given.number}", "created": given.seconds, "model": asked.model}
