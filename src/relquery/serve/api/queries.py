"""/v1/query/execute and /v1/query/prepare: trees of generations, as the spnl package sends them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from relquery.backends.base import Backend
from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Node, Seq
from relquery.ir.paths import children_of
from relquery.ir.spnl.fields import decode
from relquery.ir.spnl.read import WireQuery, read
from relquery.prompt import Finish
from relquery.serve.document import errors, streamed
from relquery.serve.errors import HttpError, Json
from relquery.serve.openai.choices import usage_of
from relquery.serve.server import RequestScope, Scope
from relquery.serve.sql_workers.hosting import Statements
from relquery.serve.sql_workers.work import Execute
from relquery.serve.streaming import EVENTS, EventResponse, event, failed_event
from relquery.serve.tasks import Task, start
from relquery.spans.result import SpanResult
from relquery.spans.run import prepare

router = APIRouter(tags=["relquery"])


class Prepared(BaseModel):
    """prepared: texts whose states are computed."""

    object: Literal["query.prepared"]
    prepared: int


MOST_BYTES = 8 << 20
_EXAMPLES = [
    '{"g": {"model": "demo", "input": {"user": "Is tea good?"}}}',
]
_BODY = {
    "requestBody": {
        "required": True,
        "description": "A query in the wire form of spnl 0.22.1, whatever the content type",
        "content": {"text/plain": {"schema": {"type": "string", "examples": _EXAMPLES}}},
    }
}
_ANSWERED = streamed("OpenAIChatCompletion,OpenAICompletion")
_PREPARED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Prepared,
        "description": "How many texts have states now; with stream as an event",
        "content": {EVENTS: {}},
    }
}


@router.post("/v1/query/execute", responses=errors(404, 422, 504) | _ANSWERED, openapi_extra=_BODY)
async def execute_query(request: Request, scope: Scope, stream: bool = False) -> Response:
    """Answer a span query: generations, some of which read the answers of others."""
    sent = await _read(request, scope)
    model = scope.server.model(sent.query.model)
    statements = scope.server.kept(Statements)
    backend, called = scope.backend(model), scope.server.names_of(model)
    task = start(scope, partial(statements.run, Execute(sent.query), backend, called))
    if stream:
        return EventResponse(_events(task, model.name, sent.completes), task, failed_event)
    result = await task.result(scope)
    return Json(Form(result, model.name, sent.completes).whole())


@router.post("/v1/query/prepare", responses=errors(404, 422, 504) | _PREPARED, openapi_extra=_BODY)
async def prepare_query(request: Request, scope: Scope, stream: bool = False) -> Response:
    """Compute the states of what a span query reads in any order, before it is executed."""
    sent = await _read(request, scope)
    backend = scope.backend(scope.server.model(sent.query.model))

    def prepare(task: Task[int]) -> int:
        with task.stopping.stops(backend.cancel):
            return sent.prepare(backend)

    count = await start(scope, prepare).result(scope)
    told = {"object": "query.prepared", "prepared": count}
    if stream:
        content = f"data: {json.dumps(told)}\n\ndata: [DONE]\n\n"
        return Response(content, media_type=EVENTS)
    return Json(told)


async def _read(request: Request, scope: RequestScope) -> Sent:
    """The query. Raises HttpError and QueryError."""
    body = await request.body()
    if len(body) > MOST_BYTES:
        raise HttpError(413, f"The query has more than {MOST_BYTES:,} bytes.", "too_large")

    def read(task: Task[Sent]) -> Sent:
        del task
        return Sent.of(body)

    sent = await start(scope, read).result(scope)
    scope.server.model(sent.query.model)  # one that is not served is refused
    return sent


async def _events(task: Task[SpanResult], model: str, completes: bool) -> AsyncIterator[bytes]:
    yield b""  # the answer begins: an error comes as an event
    await task.some()
    # One at a time: the package takes what it gets at once for one event.
    for each in Form(task.value, model, completes).events():
        yield each


@dataclass(frozen=True, slots=True)
class Sent:
    """A query. completes: whether it is a map, which is answered as completions of texts."""

    query: WireQuery
    completes: bool

    @classmethod
    def of(cls, body: bytes) -> Sent:
        """Read the wire form. Raises QueryError."""
        try:
            value = decode(body.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise QueryError(f"Byte {error.start} of the query is not UTF-8.") from None
        completes = isinstance(value, dict) and list(value) == ["map"]
        return cls(read(value, None), completes)

    def prepare(self, backend: Backend) -> int:
        """Compute the states of what stands below plus, as far as it is known; returns of how many
        texts.
        """
        return prepare(Seq(tuple(_bags(self.query.node))), backend)


def _bags(node: Node) -> Iterator[Node]:
    """The outermost parts whose states can be used at any position."""
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, Bag) and current.independent:
            yield current
        else:
            todo += reversed(children_of(current))


class Form:
    """One answer. completes: in the form of completions. model: as clients call it."""

    def __init__(self, result: SpanResult, model: str, completes: bool) -> None:
        self._texts, self._completes = result.texts, completes
        answers = [one.answer for one in result.report.generations]  # inner ones, too
        self._usage = usage_of(answers)
        self._cut = {one.text for one in answers if one.finish is Finish.LENGTH}
        kind, self._kind = ("cmpl", "text_completion") if completes else _CHAT
        self._head = {
            "id": f"{kind}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self) -> dict[str, Any]:
        """The body."""
        choices = [
            self._choice("message", at, text, self._finish(text))
            for at, text in enumerate(self._texts)
        ]
        return {**self._head, "object": self._kind, "choices": choices, "usage": self._usage}

    def events(self) -> Iterator[bytes]:
        """The same as server-sent events: each choice, its end, and the usage."""
        kind = self._kind if self._completes else f"{self._kind}.chunk"
        for at, text in enumerate(self._texts):
            for part, finish in ((text, None), ("", self._finish(text))):
                choice = self._choice("delta", at, part, finish)
                yield event({**self._head, "object": kind, "choices": [choice]})
        yield event({**self._head, "object": kind, "choices": [], "usage": self._usage})
        yield b"data: [DONE]\n\n"

    def _choice(self, name: str, at: int, text: str, finish: str | None) -> dict[str, Any]:
        """name: what a chat's message is called."""
        chat = {name: {"role": "assistant", "content": text}}
        said = {"text": text} if self._completes else chat
        return {"index": at, **said, "logprobs": None, "finish_reason": finish}

    def _finish(self, text: str) -> str:
        """Why an answer ended."""
        return "length" if text in self._cut else "stop"


_CHAT = ("chatcmpl", "chat.completion")
