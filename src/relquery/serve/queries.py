"""Routes that workers answer. /v1/sql, /v1/sql/explain and /v1/tables: statements over the
registered tables. /v1/query/execute and /v1/query/prepare: trees of generations, as the spnl
package sends them. /v1/prompts: prompts over schemas, in markup."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field, JsonValue
from starlette.responses import Response

from relquery.config import Order
from relquery.errors import QueryError
from relquery.ir.wire import WireQuery, read_value
from relquery.ir.wire_fields import decode
from relquery.prompt import Finish
from relquery.serve import bodies
from relquery.serve.errors import HttpError, Json, not_supported
from relquery.serve.openai.choices import finish_of, usage_of
from relquery.serve.server import RequestScope, Scope
from relquery.serve.sql_workers.statements import Statements, WorkerTask
from relquery.serve.sql_workers.work import WorkerJob
from relquery.serve.streaming import (
    ARROW,
    EVENTS,
    NDJSON,
    STREAMED,
    EventResponse,
    event,
    failed_event,
    failed_line,
)
from relquery.spans.work import SpanResult

router = APIRouter(tags=["relquery"])

Query = Annotated[str, Field(min_length=1, max_length=100_000)]
Share = Annotated[float, Field(ge=0, le=1)]


class Sampled(bodies.Body):
    """Sampling of the calls that do not set it; see Sampling. schema: a JSON Schema, or its text.

    model: as clients call it.
    """

    model: str | None = None
    max_tokens: bodies.Positive | None = None
    temperature: bodies.Temperature | None = None
    top_p: bodies.TopP | None = None
    top_k: bodies.Natural | None = None
    seed: bodies.Integer | None = None
    stop: Annotated[list[bodies.Label], Field(max_length=16)] | bodies.Label | None = None
    labels: Annotated[list[bodies.Label], Field(min_length=1, max_length=1000)] | None = None
    schema_: dict[str, Any] | str | None = Field(None, alias="schema")
    relquery: bodies.DeclaredFields | None = None

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these fields that are set."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def options(self) -> dict[str, Any]:
        """What is set, as keywords of Connection.sql and of Sampling."""
        keywords = self.given("max_tokens", "temperature", "top_p", "top_k", "seed", "labels")
        if self.labels is not None:
            keywords["labels"] = tuple(self.labels)
        if self.stop:
            keywords["stop"] = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if self.schema_ is not None:
            is_text = isinstance(self.schema_, str)
            keywords["schema"] = self.schema_ if is_text else json.dumps(self.schema_)
        return keywords


class QueryBody(Sampled):
    """A statement. params: a list for `?` and `$1`, or an object for `$name`.

    order: of rows and fields. guard, guard_rows: whether the order changes answers; false for no
    guard.
    """

    query: Query
    params: list[JsonValue] | dict[str, JsonValue] | None = None
    order: Order | None = None
    guard: Share | Literal[False] | None = None
    guard_rows: Annotated[int, Field(ge=1, le=100_000), bodies.WHOLE] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of both, Connection.sql and Connection.explain."""
        return super().options | self.given("order", "guard", "guard_rows")


class SqlBody(QueryBody):
    """A statement to run. stream: JSON Lines, with progress. record: what was sent is answered
    too: true for 200 prompts of each stage, or their number. max_calls: it is refused if it may ask
    more. rows: that are answered at most; the first ones.
    """

    on_error: Literal["null", "raise"] | None = None
    stream: bool = False
    format: Literal["json", "arrow"] = "json"
    record: bool | Annotated[int, Field(ge=0, le=1_000), bodies.WHOLE] = False
    max_calls: bodies.Natural | None = None
    rows: bodies.Positive | None = None


class ExplainBody(QueryBody):
    """A statement to explain. selectivity: the share of rows that pass each condition on answers,
    or one by stage. cost: what the calls cost at least, as expected and at most.
    """

    selectivity: Share | dict[str, Share] | None = None
    cost: bool = False


_RESULT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "columns, rows, report and errors; with stream, lines of JSON; with format "
        "arrow, the rows. Decimals, dates and integers beyond 2^53 are text.",
        "content": {NDJSON: {"schema": {"type": "string"}}, ARROW: {}},
    }
}


@router.post("/v1/sql", responses=_RESULT)
async def run_sql(body: SqlBody, scope: Scope) -> Response:
    """Run one statement that reads the registered tables, with calls of the model in it."""
    model = scope.server.model(body.model)
    for name in ("stream", "record") if body.format == "arrow" else ():
        if getattr(body, name):
            raise not_supported(f"{name} with format = arrow", "Leave one of them out.")
    given = {
        "query": body.query,
        "params": body.params,
        "options": body.options | {"on_error": body.on_error, "record": body.record},
        "form": "stream" if body.stream else body.format,
        **body.given("max_calls", "rows"),
    }
    statements, declared = scope.server.kept(Statements), scope.declared(body.relquery)
    task = statements.start(scope, WorkerJob("run_sql", given), model, declared)
    if body.stream:
        return EventResponse(_lines(task), task, failed_line, NDJSON)
    media = ARROW if body.format == "arrow" else "application/json"
    return EventResponse(_parts(task), task, None, media)


@router.post("/v1/sql/explain")
async def explain_sql(body: ExplainBody, scope: Scope) -> Response:
    """What a statement would ask, without asking: `text`, and the rows of EXPLAIN as `stages`."""
    options = body.options | {"selectivity": body.selectivity, "cost": body.cost}
    job = WorkerJob("explain_sql", {"query": body.query, "params": body.params, "options": options})
    task = scope.server.kept(Statements).start(scope, job, scope.server.model(body.model))
    text, stages = await task.result(scope)
    return Json({"text": text, "stages": stages})


@router.get("/v1/tables")
async def list_tables(scope: Scope) -> Response:
    """The tables that statements can read. `schema` is "main", or the name of the DuckDB file that
    one comes from."""
    pool = scope.server.kept(Statements).pool
    data = [
        {
            "name": table.name,
            "schema": table.schema,
            "columns": [{"name": name, "type": kind} for name, kind in table.columns],
            "rows": table.rows,
        }
        for table in await asyncio.to_thread(lambda: pool.tables)
    ]
    return Json({"object": "list", "data": data})


async def _parts(task: WorkerTask) -> AsyncIterator[bytes]:
    """A result, as it comes; to read it may take as long as it takes."""
    while parts := await task.some():
        task.is_delivered = True
        for part in parts:
            yield part


async def _lines(task: WorkerTask) -> AsyncIterator[bytes]:
    """What a statement tells, as it comes."""
    yield b""  # the answer begins: an error comes as a line
    while parts := await task.some():
        yield b"".join(parts)


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
    query, completes = await _read(request)
    task = _begun("answer_spans", query, scope)
    if stream:
        return EventResponse(_events(task, scope.model, completes), task, failed_event)
    return Json(_Shown(await task.result(scope), scope.model, completes).whole())


@router.post("/v1/query/prepare", responses=STREAMED, openapi_extra=_BODY)
async def prepare_query(request: Request, scope: Scope, stream: bool = False) -> Response:
    """Compute the states of what a span query reads in any order, before it is executed. Tells of
    how many texts."""
    query, _ = await _read(request)
    count = await _begun("prepare_spans", query, scope).result(scope)
    told = {"object": "query.prepared", "prepared": count}
    if stream:
        return Response(event(told) + b"data: [DONE]\n\n", media_type=EVENTS)
    return Json(told)


def _begun(name: str, query: WireQuery, scope: RequestScope) -> WorkerTask:
    """A job in a worker. Raises HttpError for a model that is not served."""
    model, job = scope.server.model(query.model), WorkerJob(name, {"query": query})
    return scope.server.kept(Statements).start(scope, job, model, scope.declared())


async def _read(request: Request) -> tuple[WireQuery, bool]:
    """The query, and whether it is a map, which is answered as completions of texts. Raises
    HttpError and QueryError."""
    body = await request.body()
    if len(body) > MOST_BYTES:
        raise HttpError(413, f"The query has more than {MOST_BYTES:,} bytes.", "too_large")
    return await asyncio.to_thread(_query_of, body)


def _query_of(body: bytes) -> tuple[WireQuery, bool]:
    try:
        value = decode(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise QueryError(f"Byte {error.start} of the query is not UTF-8.") from None
    return read_value(value, None), isinstance(value, dict) and list(value) == ["map"]


async def _events(task: WorkerTask, model: str, completes: bool) -> AsyncIterator[bytes]:
    yield b""  # the answer begins: an error comes as an event
    await task.some()
    # One at a time: the package takes what it gets at once for one event.
    for each in _Shown(task.value, model, completes).events():
        yield each


class _Shown:
    """One answer. completes: in the form of completions. model: as clients call it."""

    def __init__(self, result: SpanResult, model: str, completes: bool) -> None:
        answers = [generation.answer for generation in result.report.generations]  # inner ones, too
        cut = {answer.text for answer in answers if answer.finish is Finish.LENGTH}
        self._ended = [(text, "length" if text in cut else "stop") for text in result.texts]
        self._usage, self._completes = usage_of(answers), completes
        name, self._kind = ("cmpl", "text_completion") if completes else _CHAT
        about = {"created": int(time.time()), "model": model}
        self._head = {"id": f"{name}-{secrets.token_hex(12)}", **about}

    def whole(self) -> dict[str, Any]:
        """The body."""
        choices = [self._choice("message", index, *each) for index, each in enumerate(self._ended)]
        return {**self._head, "object": self._kind, "choices": choices, "usage": self._usage}

    def events(self) -> Iterator[bytes]:
        """The same as server-sent events: each choice, its end, and the usage."""
        head = {**self._head, "object": self._kind + ("" if self._completes else ".chunk")}
        for index, (text, reason) in enumerate(self._ended):
            for part, finish in ((text, None), ("", reason)):
                yield event({**head, "choices": [self._choice("delta", index, part, finish)]})
        yield event({**head, "choices": [], "usage": self._usage})
        yield b"data: [DONE]\n\n"

    def _choice(self, name: str, at: int, text: str, finish: str | None) -> dict[str, Any]:
        """name: what a chat's message is called."""
        chat = {name: {"role": "assistant", "content": text}}
        said = {"text": text} if self._completes else chat
        return {"index": at, **said, "logprobs": None, "finish_reason": finish}


_CHAT = ("chatcmpl", "chat.completion")
Markup = Annotated[str, Field(min_length=1, max_length=1_000_000)]


class PromptBody(Sampled):
    """A prompt in markup. markup: the schema that it names. independent: whether the schema's
    modules are used; false sends plain text."""

    markup: Markup
    prompt: Markup
    independent: bool = True


@router.post("/v1/prompts")
async def answer_prompt(body: PromptBody, scope: Scope) -> Response:
    """Answer a prompt over a schema, whose modules' states are in the cache once they were read.
    `used` has its parts, and how many of their tokens were cached; see PromptResult."""
    options = body.options | {"independent": body.independent}
    given = {"schema": body.markup, "prompt": body.prompt, "options": options}
    model, declared = scope.server.model(body.model), scope.declared(body.relquery)
    statements = scope.server.kept(Statements)
    task = statements.start(scope, WorkerJob("answer_prompt", given), model, declared)
    result = await task.result(scope)
    return Json(
        {
            "object": "prompt.answer",
            "answer": result.text,
            "finish_reason": finish_of(result.answer),
            "used": [asdict(each) for each in result.used],
            "usage": usage_of([result.answer]),
        }
    )
