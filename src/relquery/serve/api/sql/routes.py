"""/v1/sql, /v1/sql/explain and /v1/tables"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from relquery.serve.api.sql.bodies import (
    ExplainBody,
    Explained,
    SqlBody,
    SqlResult,
    TableList,
)
from relquery.serve.api.sql.desk import Desk
from relquery.serve.api.sql.reading import check_reads
from relquery.serve.api.sql.recorded import Recorded
from relquery.serve.api.sql.results import Answered
from relquery.serve.api.sql.telling import Telling
from relquery.serve.document import errors
from relquery.serve.errors import Json, not_supported
from relquery.serve.server import RequestScope, Scope
from relquery.serve.streaming import ARROW, NDJSON, EventResponse, failed_line, line
from relquery.serve.tasks import Task, start
from relquery.serve.values import plain

router = APIRouter(tags=["relquery"])

_RESULT: dict[int | str, dict[str, Any]] = {
    200: {
        "model": SqlResult,
        "description": "The result; with stream, lines of JSON; with format arrow, its rows",
        "content": {NDJSON: {"schema": {"type": "string"}}, ARROW: {}},
    }
}


@router.post("/v1/sql", responses=errors(404, 422, 504) | _RESULT)
async def run_sql(body: SqlBody, scope: Scope) -> Response:
    """Run one statement that reads the registered tables, with calls of the model in it."""
    adapter = scope.server.adapter(body.model)
    if body.stream and body.format == "arrow":
        raise not_supported("stream with format = arrow", "Leave one of them out.")
    if body.record and body.format == "arrow":
        raise not_supported("record with format = arrow", "Leave one of them out.")
    task = start(scope, _statement(scope, body, adapter))
    if body.stream:
        return EventResponse(_lines(task), task, failed_line, NDJSON)
    answered = await task.result(scope)
    if body.format == "arrow":
        return Response(await asyncio.to_thread(answered.arrow), media_type=ARROW)
    content = await asyncio.to_thread(answered.whole)
    return Response(content, media_type="application/json")


@router.post("/v1/sql/explain", response_model=Explained, responses=errors(404, 504))
async def explain_sql(body: ExplainBody, scope: Scope) -> Response:
    """What a statement would ask, without asking."""
    backend = scope.backend(adapter=scope.server.adapter(body.model))
    desk = scope.server.kept(Desk)

    def explain(task: Task[Explained]) -> Explained:
        with desk.connection(backend, backend.cancel, task.stopping) as bare:
            connection = desk.keeping(bare, scope.tenant)
            check_reads(body.query, connection.database, desk.tables.all)
            options = body.options | {"selectivity": body.selectivity}
            found = connection.explain(body.query, body.params, **options)
            return Explained(text=str(found), stages=plain(found.arrow().to_pylist()))

    explained = await start(scope, explain).result(scope)
    return Json(explained.model_dump())


@router.get("/v1/tables", response_model=TableList, responses=errors())
async def list_tables(scope: Scope) -> Response:
    """The tables that statements can read."""
    tables = scope.server.kept(Desk).tables
    data = [
        {
            "name": table.name,
            "schema": table.schema,
            "columns": [{"name": name, "type": kind} for name, kind in table.columns],
            "rows": table.rows,
        }
        for table in tables.all
    ]
    return Json({"object": "list", "data": data})


def _statement(
    scope: RequestScope, body: SqlBody, adapter: str
) -> Callable[[Task[Answered]], Answered]:
    """The task that runs a statement."""
    backend, desk = scope.backend(body.relquery, adapter), scope.server.kept(Desk)
    tenant = scope.tenant

    def run(task: Task[Answered]) -> Answered:
        telling = Telling(task.tell if body.stream else None, task.stopping)
        asked = Recorded(backend) if body.record else backend
        with desk.connection(asked, backend.cancel, task.stopping) as bare:
            text = check_reads(body.query, bare.database, desk.tables.all)
            # EXPLAIN ANALYZE looks at what goes into its ledger, which must be its own.
            connection = bare if text.analyzes else desk.keeping(bare, tenant)
            result = connection.sql(
                body.query,
                body.params,
                on_error=body.on_error,
                progress=telling,
                record=body.record,
                **body.options,
            )
            return Answered.of(result, connection)

    return run


async def _lines(task: Task[Answered]) -> AsyncIterator[bytes]:
    yield b""  # the answer begins: an error comes as a line
    while events := await task.some():
        yield b"".join(map(line, events))
    lines = task.value.lines()
    while (found := await asyncio.to_thread(next, lines, None)) is not None:
        yield await asyncio.to_thread(line, found)
