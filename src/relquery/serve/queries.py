"""/v1/query/execute and /v1/query/prepare: trees of generations, as the spnl package sends them;
and /v1/prompts: prompts over schemas, in markup."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relquery.ir.wire import WireQuery
from relquery.prompt import Finish
from relquery.serve.body import example
from relquery.serve.errors import HttpError, Json
from relquery.serve.openai.choices import finish_of, usage_of
from relquery.serve.server import RequestScope, Scope
from relquery.serve.sql import Sampled
from relquery.serve.sql_workers.statements import Statements, Task
from relquery.serve.sql_workers.work import MarkupPrompt, ReadQuery, SpanQuery
from relquery.serve.streaming import EVENTS, STREAMED, EventResponse, event, failed_event
from relquery.spans.result import SpanResult

router = APIRouter(tags=["relquery"])
MOST_BYTES = 8 << 20
_EXAMPLES = ['{"g": {"model": "demo", "input": {"user": "Is tea good?"}}}']
_BODY = {
    "requestBody": {
        "required": True,
        "description": "A query in the wire form of spnl 0.22.1, whatever the content type",
        "content": {"text/plain": {"schema": {"type": "string", "examples": _EXAMPLES}}},
    }
}


@router.post("/v1/query/execute", responses=STREAMED, openapi_extra=_BODY)
async def execute_query(request: Request, scope: Scope, stream: bool = False) -> Response:
    """Answer a span query: generations, some of which read the answers of others."""
    query, completes = await _read(request, scope)
    task = _begun(SpanQuery(query), scope)
    if stream:
        return EventResponse(_events(task, scope.model, completes), task, failed_event)
    return Json(_Shown(await task.result(scope), scope.model, completes).whole())


@router.post("/v1/query/prepare", responses=STREAMED, openapi_extra=_BODY)
async def prepare_query(request: Request, scope: Scope, stream: bool = False) -> Response:
    """Compute the states of what a span query reads in any order, before it is executed. Tells of
    how many texts."""
    query, _ = await _read(request, scope)
    count = await _begun(SpanQuery(query, prepares=True), scope).result(scope)
    told = {"object": "query.prepared", "prepared": count}
    if stream:
        content = f"data: {json.dumps(told)}\n\ndata: [DONE]\n\n"
        return Response(content, media_type=EVENTS)
    return Json(told)


def _begun(job: SpanQuery, scope: RequestScope) -> Task:
    """A job in a worker. Raises HttpError for a model that is not served."""
    model = scope.server.model(job.query.model)
    return scope.server.kept(Statements).start(scope, job, model, scope.declared())


async def _read(request: Request, scope: RequestScope) -> tuple[WireQuery, bool]:
    """The query, and whether it is a map, which is answered as completions of texts. Raises
    HttpError and QueryError."""
    body = await request.body()
    if len(body) > MOST_BYTES:
        raise HttpError(413, f"The query has more than {MOST_BYTES:,} bytes.", "too_large")
    reading = scope.server.kept(Statements).start(scope, ReadQuery(body), scope.server.model(None))
    query, is_map = await reading.result(scope)
    return query, is_map


async def _events(task: Task, model: str, completes: bool) -> AsyncIterator[bytes]:
    yield b""  # the answer begins: an error comes as an event
    await task.some()
    # One at a time: the package takes what it gets at once for one event.
    for each in _Shown(task.value, model, completes).events():
        yield each


class _Shown:
    """One answer. completes: in the form of completions. model: as clients call it."""

    def __init__(self, result: SpanResult, model: str, completes: bool) -> None:
        self._texts, self._completes = result.texts, completes
        answers = [one.answer for one in result.report.generations]  # inner ones, too
        self._usage = usage_of(answers)
        self._cut = {one.text for one in answers if one.finish is Finish.LENGTH}
        name, self._kind = ("cmpl", "text_completion") if completes else _CHAT
        about = {"created": int(time.time()), "model": model}
        self._head = {"id": f"{name}-{secrets.token_hex(12)}", **about}

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
Markup = Annotated[str, Field(min_length=1, max_length=1_000_000)]


class PromptBody(Sampled):
    """A prompt in markup. markup: the schema that it names. independent: whether the schema's
    modules are used; false sends plain text."""

    model_config = example(
        {
            "markup": '<schema name="drinks"><module name="tea">Tea is hot.</module></schema>',
            "prompt": '<prompt schema="drinks"><tea/>Is it hot?</prompt>',
        }
    )
    markup: Markup
    prompt: Markup
    independent: bool = True


class PromptAnswer(BaseModel):
    """The answer to a prompt. used: its parts, and how many of their tokens were cached; see
    PromptResult."""

    object: Literal["prompt.answer"] = "prompt.answer"
    answer: str
    finish_reason: str
    used: list[dict[str, Any]]
    usage: dict[str, Any]


@router.post("/v1/prompts", response_model=PromptAnswer)
async def answer_prompt(body: PromptBody, scope: Scope) -> Response:
    """Answer a prompt over a schema, whose modules' states are in the cache once they were read."""
    options = body.options | {"independent": body.independent}
    job = MarkupPrompt(body.markup, body.prompt, options)
    model, declared = scope.server.model(body.model), scope.declared(body.relquery)
    result = await scope.server.kept(Statements).start(scope, job, model, declared).result(scope)
    return Json(
        {
            "object": "prompt.answer",
            "answer": result.text,
            "finish_reason": finish_of(result.answer),
            "used": [asdict(each) for each in result.used],
            "usage": usage_of([result.answer]),
        }
    )
