"""Fields that bodies of OpenAI's API share: messages, and how answers are chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from relquery.errors import ConfigError
from relquery.prompt import Adjustments, Prompt, Role, Sampling, Span
from relquery.serve.body import (
    ANY,
    NONE_OF,
    NOTHING,
    OFF,
    WHOLE,
    Body,
    Declared,
    Inner,
    Integer,
)
from relquery.serve.errors import HttpError, not_supported

MOST_CHOICES = 128

Stop = str | Annotated[list[str], Field(max_length=16)] | None

SHARED: dict[str, Any] = {
    # of whom and for what: they change no answer
    "user": ANY,
    "prompt_cache_key": ANY,
    "prompt_cache_options": ANY,
    "prompt_cache_retention": ANY,
    "safety_identifier": ANY,
    # what would change answers, where it asks for nothing
    "service_tier": (None, "auto", "default"),
    "store": OFF,
    "moderation": NOTHING,
}
"""What all three APIs accept."""
ACCEPTED: dict[str, Any] = SHARED | {"metadata": ANY}
Penalty = Annotated[float, Field(ge=-2, le=2)] | None
TokenName = Annotated[str, Field(pattern=r"^\d{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]


class JsonSchema(Inner):
    """A named schema. strict, name, description: as in OpenAI's API; answers always follow it."""

    name: str = "answer"
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None

    @property
    def written(self) -> str:
        """The schema as text."""
        return json.dumps(self.schema_)


class JsonSchemaFormat(Inner):
    """Answers are JSON that is valid under a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class TextFormat(Inner):
    """Answers are text."""

    type: Literal["text"]


class JsonObjectFormat(Inner):
    """Not supported: any JSON object."""

    type: Literal["json_object"]


ResponseFormat = Annotated[
    TextFormat | JsonSchemaFormat | JsonObjectFormat, Field(discriminator="type")
]


class StructuredOutputs(Inner):
    """vLLM's field: answers among some texts, or under a JSON Schema."""

    choice: Annotated[list[str], Field(min_length=1)] | None = None
    json_: dict[str, Any] | str | None = Field(None, alias="json")


class Padding(Inner):
    """include_obfuscation: no event is padded, whatever it says."""

    include_obfuscation: bool | None = None


class StreamOptions(Padding):
    """include_usage: a last event with the tokens of all choices."""

    include_usage: bool | None = None


class Sampled(Body):
    """Fields that chat and plain completions share. From `top_k` on, they are vLLM's own."""

    model: str
    max_tokens: Annotated[int, Field(ge=1), WHOLE] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES), WHOLE] | None = 1
    stop: Stop = None
    seed: Integer | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    frequency_penalty: Penalty = None
    presence_penalty: Penalty = None
    logit_bias: dict[TokenName, Bias] | None = None
    top_k: Annotated[int, Field(ge=-1), WHOLE] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=1000)] | None = None
    ignore_eos: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    relquery: Declared | None = None

    @property
    def choices(self) -> int:
        """Answers to each prompt."""
        return self.n or 1

    @property
    def adjustments(self) -> Adjustments | None:
        """What changes logits; None for nothing. Raises ConfigError."""
        given = {name: getattr(self, name) for name in _ADJUSTED if getattr(self, name) is not None}
        if not given:
            return None
        bias = tuple((int(token), each) for token, each in given.pop("logit_bias", {}).items())
        return Adjustments(**given, logit_bias=bias)

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


_ADJUSTED = [one.name for one in fields(Adjustments)]


def samplings(
    body: Sampled, max_tokens: int, schema: str | None = None, logprobs: int | None = None
) -> list[Sampling]:
    """How the answers of each choice are chosen: one for all of them, or one each if they have
    seeds. logprobs: see Sampling. Raises HttpError."""
    labels: tuple[str, ...] = ()
    given = body.structured_outputs
    if given is not None and schema is not None and (given.json_ or given.choice):
        raise HttpError(
            400,
            "response_format and structured_outputs both say what answers look like. Give one.",
            "invalid_request",
            "structured_outputs",
        )
    if given is not None and given.json_ is not None:
        schema = given.json_ if isinstance(given.json_, str) else json.dumps(given.json_)
    if given is not None and given.choice is not None:
        labels = tuple(given.choice)
    temperature = 1.0 if body.temperature is None else body.temperature
    try:
        adjustments = body.adjustments
        found = [
            Sampling(
                max_tokens=max_tokens,
                temperature=temperature,
                top_p=1.0 if body.top_p is None else body.top_p,
                top_k=max(0, body.top_k or 0),
                seed=seed,
                stop=body.stops if schema is None and not labels else (),
                labels=labels,
                schema=schema,
                logprobs=logprobs,
                adjustments=adjustments,
            )
            for seed in _seeds(body, temperature)
        ]
    except ConfigError as error:
        raise HttpError(400, str(error), "invalid_request") from error
    if schema is not None and body.stops:
        raise not_supported("stop", "Answers under a schema end with their JSON; leave it out.")
    return found


def _seeds(body: Sampled, temperature: float) -> list[int | None]:
    """A seed for each choice where choices would be equal otherwise; else one for all."""
    if body.seed is None or temperature == 0 or body.choices == 1:
        return [body.seed]
    return [body.seed + choice for choice in range(body.choices)]


def schema_of(
    form: TextFormat | JsonSchema | JsonSchemaFormat | JsonObjectFormat | None, name: str
) -> str | None:
    """The JSON Schema that a format asks for, as text. name: of its field. Raises HttpError."""
    match form:
        case JsonSchema():
            return form.written
        case JsonSchemaFormat(json_schema=given):
            return given.written
        case JsonObjectFormat():
            raise not_supported(f"{name}.type = json_object", "Give a schema: type = json_schema.")
    return None


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
        "name": ANY,  # which no model's template reads
        "tool_calls": NONE_OF,
        "function_call": NOTHING,
        "refusal": NOTHING,
        "audio": NOTHING,
        "annotations": NONE_OF,
    }
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1)] | None


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
        said = message.content
        if said is None and message.role != "assistant":
            raise HttpError(
                400,
                "Only the assistant may say nothing: give content.",
                "invalid_request",
                "messages",
            )
        texts = [said] if isinstance(said, str) else [part.text for part in said or ()]
        role = _ROLES[message.role]
        spans += (Span(text, role, begins=at == 0) for at, text in enumerate(texts))
    if not any(span.content for span in spans):
        raise HttpError(400, "The messages contain no text.", "invalid_request", "messages")
    return tuple(spans)
