"""The bodies of requests, and how they say that answers are chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from relquery.errors import ConfigError
from relquery.prompt import Sampling
from relquery.serve.body import ANY, NONE_OF, NOTHING, WHOLE, Body, Declared, Inner, example
from relquery.serve.errors import HttpError, not_supported
from relquery.serve.wire.anthropic.blocks import CacheControl, System
from relquery.serve.wire.anthropic.prompts import InputMessage

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
