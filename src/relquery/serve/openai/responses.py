"""/v1/responses in its text form. Responses are not stored."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import Field, model_validator
from starlette.responses import Response

from relquery.prompt import Answer, Prompt, Sampling
from relquery.serve.body import ANY, NONE_OF, NOTHING, OFF, WHOLE, Body, Declared, example
from relquery.serve.document import errors, streamed
from relquery.serve.errors import HttpError, not_supported
from relquery.serve.openai.choices import finish_of, response_usage_of
from relquery.serve.openai.fields import (
    SHARED,
    ChatMessage,
    JsonObjectFormat,
    JsonSchema,
    Padding,
    Sampled,
    TextFormat,
    prompt_of,
    samplings,
    schema_of,
)
from relquery.serve.server import Asked, Question, Scope, Server
from relquery.serve.streaming import AnswerStream, event

router = APIRouter(tags=["OpenAI"])
Json = dict[str, Any]


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


@router.post("/v1/responses", responses=errors(404, 422, 504) | streamed("OpenAIResponse"))
async def respond(body: ResponseBody, scope: Scope) -> Response:
    """Answer an input."""
    return await read_response(body, scope.server).ask(scope, body)


def read_response(body: ResponseBody, server: Server) -> Question:
    """What an input asks for. Raises HttpError."""
    adapter = server.adapter(body.model)
    return Question([Asked([body.prompt], body.sampling(server), adapter)], _ResponseForm(body))


class _ResponseForm:
    """One response in OpenAI's form. See Form."""

    def __init__(self, body: ResponseBody) -> None:
        self._body, self._numbers = body, count()
        self._id, self._item = f"resp_{secrets.token_hex(24)}", f"msg_{secrets.token_hex(24)}"
        self._created = int(time.time())

    async def whole(self, answers: list[Answer]) -> Json:
        return self._ended(answers[0])

    async def events(self, stream: AnswerStream) -> AsyncIterator[bytes]:
        place: Json = {"item_id": self._item, "output_index": 0, "content_index": 0}
        chunk: list[bytes] | None = None
        while parts := await stream.some():
            chunk = self._begun(place) if chunk is None else []
            for part in parts:
                if part.piece is not None:
                    delta = part.piece.text
                    chunk.append(
                        self._event("output_text.delta", delta=delta, logprobs=[], **place)
                    )
                elif part.answer is not None:
                    ended, text = self._ended(part.answer), part.answer.text or ""
                    item = ended["output"][0]
                    chunk += [
                        self._event("output_text.done", text=text, logprobs=[], **place),
                        self._event("content_part.done", part=_text(text), **place),
                        self._event("output_item.done", item=item, output_index=0),
                        self._event(ended["status"], response=ended),
                    ]
            yield b"".join(chunk)

    def failed(self, error: HttpError) -> bytes:
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        failed = self._shown("failed", error={"code": code, "message": error.message})
        return self._event("failed", response=failed)

    def _begun(self, place: Json) -> list[bytes]:
        begun, item = self._shown("in_progress"), self._message("in_progress", [])
        return [
            self._event("created", response=begun),
            self._event("in_progress", response=begun),
            self._event("output_item.added", item=item, output_index=0),
            self._event("content_part.added", part=_text(""), **place),
        ]

    def _ended(self, answer: Answer) -> Json:
        """The response with its answer. Raises HttpError for one that could not be served."""
        cut = finish_of(answer) == "length"
        status = "incomplete" if cut else "completed"
        return self._shown(
            status,
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            output=[self._message(status, [_text(answer.text or "")])],
            usage=response_usage_of(answer),
            completed_at=None if cut else int(time.time()),
        )

    def _event(self, kind: str, **more: Any) -> bytes:
        name = f"response.{kind}"
        return event({"type": name, "sequence_number": next(self._numbers)} | more, name)

    def _message(self, status: str, content: list[Json]) -> Json:
        """The answer as an item of the output."""
        about = {"id": self._item, "status": status, "role": "assistant"}
        return {"type": "message", **about, "content": content}

    def _shown(self, status: str, **more: Any) -> Json:
        body = self._body
        form = body.text.format if body.text and body.text.format else None
        shown = form.model_dump(by_alias=True, exclude_none=True) if form else {"type": "text"}
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": shown},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": 0,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
            "usage": None,
        } | more


def _text(text: str) -> Json:
    """Text as a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
