"""The body of a request for a response, and what it asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from relquery.prompt import Prompt, Sampling
from relquery.serve.body import ANY, NONE_OF, NOTHING, OFF, WHOLE, Body, Declared, Inner, example
from relquery.serve.errors import not_supported
from relquery.serve.server import Server
from relquery.serve.wire.openai.messages import ChatMessage, prompt_of
from relquery.serve.wire.openai.sampling import JsonObjectFormat, Sampled, TextFormat, samplings


class SchemaFormat(Inner):
    """Answers are JSON that is valid under a schema."""

    type: Literal["json_schema"]
    name: str = "answer"
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextOptions(Body):
    """The form of the answer."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {"verbosity": (None, "medium")}
    format: (
        Annotated[TextFormat | SchemaFormat | JsonObjectFormat, Field(discriminator="type")] | None
    ) = None


class InputMessage(ChatMessage):
    """A message of the input, also one that an earlier response gave."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {
        **ChatMessage.ACCEPTED,
        "id": ANY,
        "status": ANY,
        "phase": NOTHING,
    }
    type: Literal["message"] = "message"

    @model_validator(mode="before")
    @classmethod
    def _refuse_item(cls, given: Any) -> Any:
        """Other items are refused by the name of their type."""
        kind = given.get("type", "message") if isinstance(given, dict) else "message"
        if isinstance(kind, str) and kind != "message":
            raise not_supported(f"input of type {kind}", "Send messages.")
        return given


class StreamOptions(Inner):
    """include_obfuscation: no event is padded, whatever it says."""

    include_obfuscation: bool | None = None


class ResponseBody(Body):
    """A request for a response. Responses are not stored."""

    model_config = example({"model": "demo", "input": "Is tea good?"})
    ACCEPTED: ClassVar[Mapping[str, Any]] = {
        "user": ANY,
        "service_tier": ANY,
        "prompt_cache_key": ANY,
        "prompt_cache_options": ANY,
        "prompt_cache_retention": ANY,
        "safety_identifier": ANY,
        "parallel_tool_calls": (None, True, False),
        "tool_choice": (None, "none", "auto"),
        "truncation": (None, "disabled"),
        "reasoning": (None, {}, {"effort": None}, {"effort": "none"}),
        "top_logprobs": (None, 0),
        "tools": NONE_OF,
        "include": NONE_OF,
        "store": OFF,
        "background": OFF,
        "previous_response_id": NOTHING,
        "conversation": NOTHING,
        "prompt": NOTHING,
        "max_tool_calls": NOTHING,
        "context_management": NONE_OF,
        "moderation": NOTHING,
    }
    model: str
    input: str | Annotated[list[InputMessage], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1), WHOLE] | None = None
    metadata: dict[str, str] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    text: TextOptions | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    relquery: Declared | None = None

    @property
    def prompt(self) -> Prompt:
        """Instructions, then the input. Raises HttpError for an input without text."""
        given: list[ChatMessage] = (
            [ChatMessage(role="user", content=self.input)]
            if isinstance(self.input, str)
            else list(self.input)
        )
        if self.instructions:
            given = [ChatMessage(role="system", content=self.instructions), *given]
        return prompt_of(given)

    def sampling(self, server: Server) -> Sampling:
        """How the answer is chosen. Raises HttpError."""
        shared = Sampled(model=self.model, temperature=self.temperature, top_p=self.top_p)
        limit = self.max_output_tokens or server.facts.context
        (found,) = samplings(shared, limit, self._schema())
        return found

    def _schema(self) -> str | None:
        match self.text.format if self.text else None:
            case SchemaFormat(schema_=schema):
                return json.dumps(schema)
            case JsonObjectFormat():
                raise not_supported(
                    "text.format.type = json_object", "Give a schema: type = json_schema."
                )
        return None
