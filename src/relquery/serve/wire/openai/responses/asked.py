"""The body of a request for a response, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from relquery.prompt import Prompt, Sampling
from relquery.serve.body import ANY, NONE_OF, NOTHING, OFF, WHOLE, Body, Declared, example
from relquery.serve.errors import not_supported
from relquery.serve.server import Server
from relquery.serve.wire.openai.messages import ChatMessage, prompt_of
from relquery.serve.wire.openai.sampling import (
    SHARED,
    JsonObjectFormat,
    JsonSchema,
    Padding,
    Sampled,
    TextFormat,
    samplings,
    schema_of,
)


class SchemaFormat(JsonSchema):
    """Answers are JSON that is valid under a schema."""

    type: Literal["json_schema"]


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


class Reasoning(Body):
    """How the model is to reason, which none does here."""

    WITHIN: ClassVar[str] = "reasoning"

    ACCEPTED: ClassVar[Mapping[str, Any]] = {
        "effort": (None, "none"),
        "summary": NOTHING,
        "generate_summary": NOTHING,
        "context": (None, "auto"),
        "mode": (None, "standard"),
    }


class ResponseBody(Body):
    """A request for a response. Responses are not stored."""

    model_config = example({"model": "demo", "input": "Is tea good?"})
    ACCEPTED: ClassVar[Mapping[str, Any]] = {
        **SHARED,
        "parallel_tool_calls": (None, True, False),
        "tool_choice": (None, "none", "auto"),
        "truncation": (None, "disabled"),
        "top_logprobs": (None, 0),
        "tools": NONE_OF,
        "include": NONE_OF,
        "background": OFF,
        "background_options": (None, {}),
        "access_programs": (None, {}),
        "image": (None, {}),
        "previous_response_id": NOTHING,
        "conversation": NOTHING,
        "prompt": NOTHING,
        "max_tool_calls": NOTHING,
        "context_management": NONE_OF,
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
    stream_options: Padding | None = None
    reasoning: Reasoning | None = None
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
        schema = schema_of(self.text.format if self.text else None, "text.format")
        (found,) = samplings(shared, limit, schema)
        return found
