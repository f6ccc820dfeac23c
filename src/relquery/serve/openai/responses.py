"""/v1/responses in its text form. Responses are not stored."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from starlette.responses import Response

from relquery.prompt import Answer, Prompt, Sampling
from relquery.serve.body import ANY, NONE_OF, NOTHING, OFF, WHOLE, Body, Declared, Inner, example
from relquery.serve.errors import HttpError
from relquery.serve.openai.choices import finish_of, response_usage_of
from relquery.serve.openai.fields import (
    SHARED,
    CalledFunction,
    ChatMessage,
    DescribedFunction,
    JsonObjectFormat,
    JsonSchema,
    MadeCall,
    NamedFunction,
    Padding,
    Sampled,
    TextFormat,
    TextPart,
    ToolOptions,
    form_of,
    prompt_of,
    samplings,
)
from relquery.serve.server import NamedModel, PromptGroup, Question, Scope, Server
from relquery.serve.streaming import STREAMED, AnswerStream, event
from relquery.serve.tools import Reply
from relquery.tools import Delta

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


class FunctionTool(DescribedFunction):
    """A function that the model may call."""

    type: Literal["function"] = "function"


class NamedChoice(NamedFunction):
    """The function that is called."""

    type: Literal["function"]

    @property
    def chosen(self) -> str:
        """Its name."""
        return self.name


class InputMessage(ChatMessage):
    """A message of the input, also one that an earlier response gave."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {
        **ChatMessage.ACCEPTED,
        "id": ANY,
        "status": ANY,
        "phase": NOTHING,
    }
    type: Literal["message"] = "message"


class CallItem(CalledFunction):
    """A call that an earlier response gave."""

    model_config = ConfigDict(extra="ignore", strict=True)
    type: Literal["function_call"]
    call_id: str


class ResultItem(Inner):
    """What a call returned."""

    model_config = ConfigDict(extra="ignore", strict=True)
    type: Literal["function_call_output"]
    call_id: str
    output: str | list[TextPart]


def _kind_of(given: Any) -> Any:
    found = given.get("type", "message") if isinstance(given, dict) else None
    return found if isinstance(found, str) else None


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[ResultItem, Tag("function_call_output")],
    Discriminator(_kind_of),
]


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


class ResponseBody(ToolOptions):
    """A request for a response. Responses are not stored."""

    model_config = example({"model": "demo", "input": "Is tea good?"})
    ACCEPTED: ClassVar[Mapping[str, Any]] = {
        **SHARED,
        "truncation": (None, "disabled"),
        "top_logprobs": (None, 0),
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
    input: str | Annotated[list[InputItem], Field(min_length=1)]
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
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
        given = (
            [ChatMessage(role="user", content=self.input)]
            if isinstance(self.input, str)
            else _messages(self.input)
        )
        if self.instructions:
            given = [ChatMessage(role="system", content=self.instructions), *given]
        return prompt_of(given, self.functions)

    def sampling(self, model: NamedModel) -> Sampling:
        """How the answer is chosen. Raises HttpError."""
        shared = Sampled(model=self.model, temperature=self.temperature, top_p=self.top_p)
        limit = self.max_output_tokens or model.facts.context
        form = form_of(self.text.format if self.text else None, self.tool_use)
        (found,) = samplings(shared, limit, form)
        return found


def _messages(items: Sequence[InputMessage | CallItem | ResultItem]) -> list[ChatMessage]:
    """Items as a chat. Calls belong to the assistant's message before them."""
    found: list[ChatMessage] = []
    for item in items:
        match item:
            case CallItem(name=name, arguments=arguments):
                function = CalledFunction(name=name, arguments=arguments)
                call = MadeCall(id=item.call_id, function=function)
                if not found or found[-1].role != "assistant":
                    found.append(ChatMessage(role="assistant", tool_calls=[call]))
                else:
                    calls = [*(found[-1].tool_calls or ()), call]
                    found[-1] = found[-1].model_copy(update={"tool_calls": calls})
            case ResultItem(output=output):
                text = output if isinstance(output, str) else "".join(p.text for p in output)
                found.append(ChatMessage(role="tool", content=text, tool_call_id=item.call_id))
            case _:
                found.append(item)
    return found


@router.post("/v1/responses", responses=STREAMED)
async def respond(body: ResponseBody, scope: Scope) -> Response:
    """Answer an input."""
    return await read_response(body, scope.server).ask(scope, body)


def read_response(body: ResponseBody, server: Server) -> Question:
    """What an input asks for. Raises HttpError."""
    model = server.model(body.model)
    group = PromptGroup([body.prompt], body.sampling(model))
    return Question(model, [group], _ResponseForm(body, model))


class _ResponseForm:
    """One response in OpenAI's form. See Form."""

    def __init__(self, body: ResponseBody, model: NamedModel) -> None:
        self._body, self._numbers = body, count()
        self._id, self._created = f"resp_{secrets.token_hex(24)}", int(time.time())
        self._reply = Reply(body.tool_use, model.facts.calls, "call_")
        self._output: list[Json] = []
        """Items so far; the last one may be open."""

    async def whole(self, answers: list[Answer]) -> Json:
        (answer,) = answers
        deltas = self._reply.take(answer.text or "") + self._reply.end()
        for _ in self._heard(deltas, answer):
            pass
        return self._ended(answer)

    async def events(self, stream: AnswerStream) -> AsyncIterator[bytes]:
        begun = False
        while parts := await stream.some():
            chunk: list[bytes] = []
            if not begun:
                begun, shown = True, self._shown("in_progress")
                chunk = [self._event(kind, response=shown) for kind in ("created", "in_progress")]
            for part in parts:
                if part.piece is not None:
                    chunk += self._heard(self._reply.take(part.piece.text))
                elif part.answer is not None:
                    finish_of(part.answer)
                    chunk += self._heard(self._reply.end(), part.answer)
                    ended = self._ended(part.answer)
                    chunk.append(self._event(ended["status"], response=ended))
            yield b"".join(chunk)

    def failed(self, error: HttpError) -> bytes:
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        failed = self._shown("failed", error={"code": code, "message": error.message})
        return self._event("failed", response=failed)

    def _heard(self, deltas: Sequence[Delta], answer: Answer | None = None) -> Iterator[bytes]:
        """The events of what is new. answer: of the last of it."""
        for delta in deltas:
            if delta.call is None:
                if not self._output or self._output[-1]["type"] != "message":
                    yield from self._close()
                    yield from self._open(self._message())
                self._output[-1]["content"][0]["text"] += delta.text
                place = self._place(content_index=0)
                yield self._event("output_text.delta", delta=delta.text, logprobs=[], **place)
                continue
            if delta.name:
                yield from self._close()
                yield from self._open(self._call(delta.call))
            if delta.arguments:
                self._output[-1]["arguments"] += delta.arguments
                yield self._event(
                    "function_call_arguments.delta", delta=delta.arguments, **self._place()
                )
        if answer is not None:
            if not self._output:
                yield from self._open(self._message())
            cut = finish_of(answer) == "length"
            yield from self._close("incomplete" if cut else "completed")

    def _open(self, item: Json) -> Iterator[bytes]:
        self._output.append(item)
        is_text = item["type"] == "message"
        begun = item | {"content": []} if is_text else item
        yield self._event("output_item.added", item=begun, output_index=len(self._output) - 1)
        if is_text:
            place = self._place(content_index=0)
            yield self._event("content_part.added", part=_text(""), **place)

    def _close(self, status: str = "completed") -> Iterator[bytes]:
        """End the last item."""
        if not self._output:
            return
        item, place = self._output[-1], self._place()
        item["status"] = status
        if item["type"] == "message":
            (part,) = item["content"]
            place["content_index"] = 0
            yield self._event("output_text.done", text=part["text"], logprobs=[], **place)
            yield self._event("content_part.done", part=part, **place)
        else:
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("function_call_arguments.done", **done, **place)
        yield self._event("output_item.done", item=item, output_index=len(self._output) - 1)

    def _place(self, **more: Any) -> Json:
        return {
            "item_id": self._output[-1]["id"],
            "output_index": len(self._output) - 1,
        } | more

    def _ended(self, answer: Answer) -> Json:
        """The response with its answer. Raises HttpError for one that could not be served."""
        cut = finish_of(answer) == "length"
        return self._shown(
            "incomplete" if cut else "completed",
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            output=self._output,
            usage=response_usage_of(answer),
            completed_at=None if cut else int(time.time()),
        )

    def _message(self) -> Json:
        """Text as an item of the output."""
        about = {"id": f"msg_{secrets.token_hex(24)}", "status": "in_progress"}
        return {"type": "message", **about, "role": "assistant", "content": [_text("")]}

    def _call(self, number: int) -> Json:
        """A call as an item of the output."""
        call = self._reply.calls[number]
        about = {"id": f"fc_{secrets.token_hex(24)}", "status": "in_progress", "call_id": call.id}
        return {"type": "function_call", **about, "name": call.name, "arguments": ""}

    def _event(self, kind: str, **more: Any) -> bytes:
        name = f"response.{kind}"
        return event({"type": name, "sequence_number": next(self._numbers)} | more, name)

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
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
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
            "usage": None,
        } | more


def _text(text: str) -> Json:
    """Text as a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _plain(given: Any) -> Any:
    """A part of the body as it came."""
    return given.model_dump() if isinstance(given, BaseModel) else given
