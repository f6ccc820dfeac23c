"""/v1/responses in its text form. Responses are not stored."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from starlette.responses import Response

from relquery.backends.local.asking import Piece
from relquery.prompt import Answer
from relquery.serve import bodies
from relquery.serve.errors import HttpError
from relquery.serve.openai import fields
from relquery.serve.openai.choices import finish_of
from relquery.serve.server import NamedModel, PromptGroup, Scope
from relquery.serve.streaming import STREAMED, ParsedAnswer, ResponseForm, event
from relquery.tools import Delta

router = APIRouter(tags=["OpenAI"])
Json = dict[str, Any]


class SchemaFormat(fields.JsonSchema):
    """Answers are JSON that is valid under a schema."""

    type: Literal["json_schema"]


class TextOptions(bodies.Body):
    """The form of the answer."""

    ACCEPTED: ClassVar = {"verbosity": ("medium",)}
    format: Annotated[SchemaFormat | fields.OtherFormat, Field(discriminator="type")] | None = None


class FunctionTool(fields.DescribedFunction):
    """A function that the model may call."""

    type: Literal["function"] = "function"


class NamedChoice(fields.NamedFunction):
    """The function that is called."""

    type: Literal["function"]


class InputMessage(fields.ChatMessage):
    """A message of the input, also one that an earlier response gave."""

    ACCEPTED: ClassVar = {
        **fields.ChatMessage.ACCEPTED,
        "id": bodies.ANY,
        "status": bodies.ANY,
    }
    type: Literal["message"] = "message"


class CallItem(fields.CalledFunction):
    """A call that an earlier response gave."""

    model_config = ConfigDict(extra="ignore", strict=True)
    type: Literal["function_call"]
    call_id: str


class ResultItem(bodies.Inner):
    """The result of a call."""

    model_config = ConfigDict(extra="ignore", strict=True)
    type: Literal["function_call_output"]
    call_id: str
    output: str | list[fields.TextPart]


def _kind_of(given: Any) -> Any:
    kind = given.get("type", "message") if isinstance(given, dict) else None
    return kind if isinstance(kind, str) else None


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[ResultItem, Tag("function_call_output")],
    Discriminator(_kind_of),
]


class Reasoning(bodies.Body):
    """Settings of reasoning, which no model does here."""

    WITHIN: ClassVar = "reasoning"

    ACCEPTED: ClassVar = {
        "effort": ("none",),
        "context": ("auto",),
        "mode": ("standard",),
    }


class ResponseBody(fields.CallsTools):
    """A request for a response. Responses are not stored."""

    ACCEPTED: ClassVar = {
        **fields.SHARED,
        "truncation": ("disabled",),
        "top_logprobs": (0,),
    }
    model: str
    input: str | Annotated[list[InputItem], Field(min_length=1)]
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    instructions: str | None = None
    max_output_tokens: bodies.Positive | None = None
    metadata: dict[str, str] | None = None
    temperature: bodies.Temperature | None = None
    top_p: bodies.TopP | None = None
    text: TextOptions | None = None
    stream: bool | None = None
    stream_options: fields.Padding | None = None
    reasoning: Reasoning | None = None
    relquery: bodies.DeclaredFields | None = None


def _messages(items: Sequence[InputMessage | CallItem | ResultItem]) -> list[fields.ChatMessage]:
    """Items as a chat. Calls belong to the assistant's message before them."""
    chat: list[fields.ChatMessage] = []
    for item in items:
        match item:
            case CallItem(name=name, arguments=arguments):
                function = fields.CalledFunction(name=name, arguments=arguments)
                call = fields.MadeCall(id=item.call_id, function=function)
                if not chat or chat[-1].role != "assistant":
                    chat.append(fields.ChatMessage(role="assistant", tool_calls=[call]))
                else:
                    calls = [*(chat[-1].tool_calls or ()), call]
                    chat[-1] = chat[-1].model_copy(update={"tool_calls": calls})
            case ResultItem(output=output):
                text = output if isinstance(output, str) else "".join(p.text for p in output)
                told: dict[str, Any] = {"content": text, "tool_call_id": item.call_id}
                chat.append(fields.ChatMessage(role="tool", **told))
            case _:
                chat.append(item)
    return chat


@router.post("/v1/responses", responses=STREAMED)
async def respond(body: ResponseBody, scope: Scope) -> Response:
    """Answer an input."""
    model = scope.server.model(body.model)
    given = body.input
    items: list[InputMessage | CallItem | ResultItem] = (
        [InputMessage(role="user", content=given)] if isinstance(given, str) else given
    )
    if body.instructions:
        items = [InputMessage(role="system", content=body.instructions), *items]
    chat = _messages(items)
    shared = fields.SamplingFields(model=body.model, temperature=body.temperature, top_p=body.top_p)
    limit, form = body.max_output_tokens or model.facts.context, body.text and body.text.format
    (sampling,) = fields.samplings(shared, limit, fields.format_of(form), tools=body.tool_use)
    group = PromptGroup([fields.prompt_of(chat, body.functions)], sampling)
    return await scope.answer(body, model, [group], _ResponseForm(body, model))


class _ResponseForm(ResponseForm):
    """One response in OpenAI's form."""

    def __init__(self, body: ResponseBody, model: NamedModel) -> None:
        self._body, self._numbers = body, count()
        self._id, self._created = f"resp_{secrets.token_hex(24)}", int(time.time())
        self._reply = ParsedAnswer(body.tool_use, model.facts.calls, "call_")
        self._output: list[Json] = []
        """Items so far; the last one may be open."""
        self._place: Json = {}
        """Where that one stands."""

    def whole(self, answers: list[Answer]) -> Json:
        (answer,) = answers
        list(self._heard(self._reply.whole(answer), answer))
        return self._ended(answer)

    def begin(self, begun: object) -> bytes:
        shown = self._shown("in_progress")
        return b"".join(self._event(kind, response=shown) for kind in ("created", "in_progress"))

    def piece(self, at: int, piece: Piece) -> bytes:
        return b"".join(self._heard(self._reply.take(piece.text)))

    def last(self, at: int, answer: Answer) -> bytes:
        finish_of(answer)  # raises for one without an answer
        events = b"".join(self._heard(self._reply.end(), answer))
        ended = self._ended(answer)
        return events + self._event(ended["status"], response=ended)

    def failed(self, error: HttpError) -> bytes:
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        failed = self._shown("failed", error={"code": code, "message": error.message})
        return self._event("failed", response=failed)

    def _heard(self, deltas: Sequence[Delta], answer: Answer | None = None) -> Iterator[bytes]:
        """The events of what is new. answer: of the last of it."""
        for delta in deltas:
            if delta.call is None:
                if not self._output or self._output[-1]["type"] != "message":
                    yield from self._open_text()
                self._output[-1]["content"][0]["text"] += delta.text
                told = {"delta": delta.text, "logprobs": []}
                yield self._event("output_text.delta", **told, **self._place)
                continue
            if delta.name:
                call = self._reply.calls[delta.call]
                about = {"call_id": call.id, "name": call.name, "arguments": ""}
                yield from self._open("function_call", "fc", **about)
            if delta.arguments:
                self._output[-1]["arguments"] += delta.arguments
                told = {"delta": delta.arguments}
                yield self._event("function_call_arguments.delta", **told, **self._place)
        if answer is not None:
            if not self._output:
                yield from self._open_text()
            cut = finish_of(answer) == "length"
            yield from self._close("incomplete" if cut else "completed")

    def _open_text(self) -> Iterator[bytes]:
        yield from self._open("message", "msg", role="assistant", content=[])
        self._place["content_index"] = 0
        yield self._event("content_part.added", part=_text(), **self._place)
        self._output[-1]["content"] = [_text()]

    def _open(self, kind: str, prefix: str, **about: Any) -> Iterator[bytes]:
        """Begin an item of the output, which ends the one before."""
        yield from self._close()
        name, index = f"{prefix}_{secrets.token_hex(24)}", len(self._output)
        item = {"type": kind, "id": name, "status": "in_progress", **about}
        self._output.append(item)
        self._place = {"item_id": name, "output_index": index}
        yield self._event("output_item.added", item=item, output_index=index)

    def _close(self, status: str = "completed") -> Iterator[bytes]:
        """End the last item."""
        if not self._output:
            return
        item, place = self._output[-1], self._place
        item["status"] = status
        if item["type"] == "message":
            (part,) = item["content"]
            yield self._event("output_text.done", text=part["text"], logprobs=[], **place)
            yield self._event("content_part.done", part=part, **place)
        else:
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("function_call_arguments.done", **done, **place)
        yield self._event("output_item.done", item=item, output_index=place["output_index"])

    def _ended(self, answer: Answer) -> Json:
        """The response with its answer. Raises HttpError for one that could not be served."""
        cut, cached = finish_of(answer) == "length", answer.cached_tokens
        return self._shown(
            "incomplete" if cut else "completed",
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            output=self._output,
            usage={
                "input_tokens": answer.prompt_tokens,
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
                "output_tokens": answer.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answer.prompt_tokens + answer.output_tokens,
            },
            completed_at=None if cut else int(time.time()),
        )

    def _event(self, kind: str, **more: Any) -> bytes:
        name = f"response.{kind}"
        return event({"type": name, "sequence_number": next(self._numbers)} | more, name)

    def _shown(self, status: str, **more: Any) -> Json:
        body = self._body
        form = body.text.format if body.text and body.text.format else None
        shown = form.model_dump(by_alias=True, exclude_none=True) if form else {"type": "text"}
        none = ("error", "incomplete_details", "max_tool_calls", "previous_response_id", "usage")
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": status,
            "background": False,
            **dict.fromkeys(none),
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": shown},
            "tool_choice": _plain(body.tool_choice) or "auto",
            "tools": [_plain(each) for each in body.tools or ()],
            "top_logprobs": 0,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
        } | more


def _text() -> Json:
    """Text that begins, as a part of a message."""
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def _plain(given: Any) -> Any:
    """A part of the body as it came."""
    return given.model_dump() if isinstance(given, BaseModel) else given
