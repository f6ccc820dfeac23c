"""Requests of Anthropic's API: messages, cache breakpoints, and how answers are chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from relquery.errors import ConfigError
from relquery.prompt import Prompt, Role, Sampling, Span
from relquery.serve.body import ANY, NONE_OF, NOTHING, WHOLE, Body, Declared, Inner, example
from relquery.serve.errors import HttpError, not_supported

MOST_BREAKPOINTS = 4
SECONDS = {"5m": 300.0, "1h": 3600.0}
"""How long what a breakpoint ends is kept after its last use."""
LEVELS = {"5m": 1, "1h": 2}
"""What is kept for longer is kept before the rest when the cache is full."""


class CacheControl(Inner):
    """A cache breakpoint: the prompt up to the end of its block is kept."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class TextBlock(Body):
    """Text, of which several may make up a message. Other kinds of blocks are refused by name."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {"citations": NONE_OF}
    type: Literal["text"]
    text: Annotated[str, Field(min_length=1)]
    cache_control: CacheControl | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_others(cls, given: Any) -> Any:
        kind = given.get("type") if isinstance(given, dict) else None
        if isinstance(kind, str) and kind != "text":
            raise not_supported(f"content of type {kind[:40]}", "Send text blocks.")
        return given


def _form_of(given: object) -> str:
    return "blocks" if isinstance(given, list) else "text"


# Discriminated so that an error names what is wrong in a block, not that it is no string.
Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[TextBlock], Field(min_length=1), Tag("blocks")],
    Discriminator(_form_of),
]
System = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[TextBlock], Tag("blocks")],
    Discriminator(_form_of),
]
"""Content that may be empty."""


def blocks_of(content: System) -> list[TextBlock]:
    """Content as blocks: a string is one. Those of an empty string are none."""
    if isinstance(content, str):
        return [TextBlock.model_construct(type="text", text=content)] if content else []
    return content


def with_automatic(
    blocks: list[TextBlock], automatic: CacheControl | None
) -> list[CacheControl | None]:
    """The breakpoint of each block. automatic: the request's, for its last block.

    Raises HttpError for more of them than there may be, and for one of an hour after others.
    """
    found = [block.cache_control for block in blocks]
    if automatic is not None and found:
        if found[-1] is not None and found[-1] != automatic:
            raise _invalid("The last block has a cache_control with another ttl than the request.")
        found[-1] = automatic
    ttls = [each.ttl for each in found if each is not None]
    if len(ttls) > MOST_BREAKPOINTS:
        raise _invalid(
            f"{len(ttls)} blocks have cache_control; at most {MOST_BREAKPOINTS} may have it."
        )
    if ttls != sorted(ttls):  # "1h" is before "5m"
        raise _invalid("A cache_control with ttl 1h comes after one with ttl 5m; it must be first.")
    return found


def _invalid(message: str) -> HttpError:
    return HttpError(400, message, "invalid_request", "cache_control")


class InputMessage(Inner):
    """A message. Messages of one role in a row are one turn."""

    role: Literal["user", "assistant", "system"]
    content: Content


ACCEPTED: dict[str, Any] = {
    "tools": NONE_OF,
    "tool_choice": (None, {"type": "none"}, {"type": "auto"}),
    "thinking": (None, {"type": "disabled"}),
    "mcp_servers": NONE_OF,
    "context_management": NOTHING,
    "speed": (None, "standard"),
    "user_profile_id": ANY,
    "workspace_id": ANY,
    "betas": NONE_OF,
    "billing_policy": NOTHING,
    "compaction": NOTHING,
    "thread": NOTHING,
}


class Metadata(Inner):
    """Whom a request is for; it changes no answer."""

    user_id: str | None = None


class JsonFormat(Inner):
    """Answers are JSON that is valid under a schema."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    """The form of the answer."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {"effort": (None, "high"), "task_budget": NOTHING}
    format: JsonFormat | None = None


class Counted(Body):
    """What is common to messages and to counting their tokens."""

    model_config = example(
        {"model": "demo", "messages": [{"role": "user", "content": "Is tea good?"}]}
    )
    ACCEPTED: ClassVar[Mapping[str, Any]] = ACCEPTED
    model: str
    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=100_000)]
    system: System | None = None
    cache_control: CacheControl | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None

    @property
    def schema_text(self) -> str | None:
        """The JSON Schema of the answer. Raises HttpError if there are two."""
        nested = None if self.output_config is None else self.output_config.format
        if nested is not None and self.output_format is not None:
            raise HttpError(
                400,
                "output_format and output_config.format are both given; give the latter alone.",
                "invalid_request",
                "output_format",
            )
        form = nested or self.output_format
        return None if form is None else json.dumps(form.schema_)


class MessageBody(Counted):
    """A request for a message. max_tokens: 0 to compute a prompt's states and answer nothing."""

    model_config = example(
        {
            "model": "demo",
            "max_tokens": 8,
            "messages": [{"role": "user", "content": "Is tea good?"}],
        }
    )
    ACCEPTED: ClassVar[Mapping[str, Any]] = ACCEPTED | {
        "container": NOTHING,
        "diagnostics": NOTHING,
        "inference_geo": NOTHING,
        "fallbacks": NONE_OF,
        "fallback_credit_token": NOTHING,
    }
    max_tokens: Annotated[int, Field(ge=0), WHOLE]
    stop_sequences: (
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=64)] | None
    ) = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0), WHOLE] | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    relquery: Declared | None = None


def sampling_of(body: MessageBody) -> Sampling:
    """How the answer is chosen. Raises HttpError."""
    schema = body.schema_text
    if schema is not None and body.stop_sequences:
        raise not_supported(
            "stop_sequences", "Answers under a schema end with their JSON; leave it out."
        )
    if body.max_tokens == 0 and (body.stream or schema is not None):
        name = "stream" if body.stream else "output_config.format"
        raise HttpError(
            400, f"'{name}' needs an answer; max_tokens is 0.", "invalid_request", "max_tokens"
        )
    try:
        return Sampling(
            max_tokens=max(1, body.max_tokens),
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            top_k=body.top_k or 0,
            stop=tuple(body.stop_sequences or ()),
            schema=schema,
        )
    except ConfigError as error:
        raise HttpError(400, str(error), "invalid_request") from error


def prompt_of(
    system: System | None, messages: Sequence[InputMessage], automatic: CacheControl | None
) -> tuple[Prompt, list[str]]:
    """The prompt, and the ttl of each of its breakpoints.

    A last message of the assistant is open: the answer continues it. Raises HttpError.
    """
    turns = [(Role.SYSTEM, blocks_of(system))] if system else []
    for at, message in enumerate(messages):
        blocks = blocks_of(message.content)
        is_prefill = message.role == "assistant" and at == len(messages) - 1
        if not blocks and not is_prefill:
            raise HttpError(400, f"messages.{at} has no text.", "invalid_request", "messages")
        if is_prefill and blocks and blocks[-1].text[-1].isspace():
            raise HttpError(
                400,
                "The last message of the assistant ends with white space, from which no answer can "
                "continue. Remove it.",
                "invalid_request",
                "messages",
            )
        turns.append((Role(message.role), blocks))
    return _spans(turns, automatic, is_open=bool(turns[-1][1]) and turns[-1][0] is Role.ASSISTANT)


def _spans(
    turns: Sequence[tuple[Role, list[TextBlock]]], automatic: CacheControl | None, is_open: bool
) -> tuple[Prompt, list[str]]:
    breakpoints = iter(with_automatic([each for _, blocks in turns for each in blocks], automatic))
    spans: list[Span] = []
    ttls: list[str] = []
    for role, blocks in turns:
        if blocks and spans and spans[-1].role is role:  # one turn: a line break between them
            ends_line = str(spans[-1].content).endswith("\n")
            spans += [] if ends_line else [Span("\n", role)]
        for block in blocks:
            kept = next(breakpoints)
            if kept is None:
                spans.append(Span(block.text, role))
                continue
            ttls.append(kept.ttl)
            spans.append(Span(block.text, role, keep=LEVELS[kept.ttl], keep_for=SECONDS[kept.ttl]))
    if is_open:
        spans[-1] = replace(spans[-1], open=True)
    return tuple(spans), ttls
