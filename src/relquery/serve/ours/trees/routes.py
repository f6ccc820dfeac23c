"""/v1/query/execute and /v1/query/prepare, as the spnl package calls them"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.serve.asked import Caller
from relquery.serve.documented import errors
from relquery.serve.errors import HttpError, openai_body
from relquery.serve.ours.lines import Json, Streamed
from relquery.serve.ours.runs import Run, start
from relquery.serve.ours.sql.desk import Desk
from relquery.serve.ours.trees.documented import Completed, Prepared
from relquery.serve.ours.trees.form import Form
from relquery.serve.ours.trees.queries import Sent
from relquery.spans.result import SpanResult

router = APIRouter(tags=["relquery"])

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
_EVENTS: dict[str, Any] = {"text/event-stream": {}}
_ANSWERED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Completed,
        "description": "A chat completion, of a map a text completion; with stream as events",
        "content": _EVENTS,
    }
}
_PREPARED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Prepared,
        "description": "How many texts have states now; with stream as an event",
        "content": _EVENTS,
    }
}


@router.post("/v1/query/execute", responses=errors(404, 422, 504) | _ANSWERED, openapi_extra=_BODY)
async def execute_query(request: Request, stream: bool = False) -> Response:
    """Answer a span query: generations, some of which read the answers of others."""
    caller, sent = await _read(request)
    backend = caller.backend(adapter=caller.adapter(sent.query.model))
    desk = caller.server.kept(Desk)

    def execute(run: Run[SpanResult]) -> SpanResult:
        with desk.connection(backend, backend.cancel, run.stopping) as connection:
            for effect in sent.query.effects:
                connection.run(effect)
            return connection.run(sent.query.node, corpora=sent.corpora, progress=checked(run))

    def checked(run: Run[SpanResult]) -> Any:
        return lambda *_: run.stopping.check()

    run = start(caller, execute)
    model = sent.query.model or caller.server.models[0]
    if stream:
        return Streamed(
            _events(run, model, sent.completes),
            run.leave,
            failed=_failed,
            media_type="text/event-stream",
        )
    result = await run.whole(request)
    return Json(Form(result, model, sent.completes).whole())


@router.post("/v1/query/prepare", responses=errors(404, 422, 504) | _PREPARED, openapi_extra=_BODY)
async def prepare_query(request: Request, stream: bool = False) -> Response:
    """Compute the states of what a span query reads in any order, before it is executed."""
    caller, sent = await _read(request)
    backend = caller.backend(adapter=caller.adapter(sent.query.model))

    def prepare(run: Run[int]) -> int:
        with run.stopping.stops(backend.cancel):
            return sent.prepare(backend)

    count = await start(caller, prepare).whole(request)
    told = {"object": "query.prepared", "prepared": count}
    if stream:
        content = f"data: {json.dumps(told)}\n\ndata: [DONE]\n\n"
        return Response(content, media_type="text/event-stream")
    return Json(told)


async def _read(request: Request) -> tuple[Caller, Sent]:
    """Who asks, and the query. Raises HttpError and QueryError."""
    caller = Caller(request)
    body = await request.body()
    if len(body) > MOST_BYTES:
        raise HttpError(413, f"The query has more than {MOST_BYTES:,} bytes.", "too_large")

    def read(run: Run[Sent]) -> Sent:
        del run
        return Sent.of(body)

    sent = await start(caller, read).whole(request)
    caller.adapter(sent.query.model)
    return caller, sent


async def _events(run: Run[SpanResult], model: str, completes: bool) -> AsyncIterator[bytes]:
    result = await run.result()
    # One at a time: the package takes what it gets at once for one event.
    for event in Form(result, model, completes).events():
        yield event


def _failed(error: HttpError) -> bytes:
    return f"data: {json.dumps(openai_body(error))}\n\n".encode()
