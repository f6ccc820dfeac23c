"""/v1/sql, /v1/sql/explain and /v1/tables"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.serve.asked import Caller
from relquery.serve.documented import errors
from relquery.serve.errors import not_supported
from relquery.serve.ours.lines import ARROW, NDJSON, Json, Streamed, line
from relquery.serve.ours.runs import Run, start
from relquery.serve.ours.sql.bodies import (
    ExplainBody,
    Explained,
    SqlBody,
    SqlResult,
    TableList,
)
from relquery.serve.ours.sql.desk import Desk
from relquery.serve.ours.sql.reading import check_reads
from relquery.serve.ours.sql.recorded import Recorded
from relquery.serve.ours.sql.results import Answered
from relquery.serve.ours.sql.telling import Telling
from relquery.serve.ours.values import plain

router = APIRouter(tags=["relquery"])

_RESULT: dict[int | str, dict[str, Any]] = {
    200: {
        "model": SqlResult,
        "description": "The result; with stream, lines of JSON; with format arrow, its rows",
        "content": {NDJSON: {"schema": {"type": "string"}}, ARROW: {}},
    }
}


@router.post("/v1/sql", responses=errors(404, 422, 504) | _RESULT)
async def run_sql(body: SqlBody, request: Request) -> Response:
    """Run one statement that reads the registered tables, with calls of the model in it."""
    caller = Caller(request)
    adapter = caller.adapter(body.model)
    if body.stream and body.format == "arrow":
        raise not_supported("stream with format = arrow", "Leave one of them out.")
    if body.record and body.format == "arrow":
        raise not_supported("record with format = arrow", "Leave one of them out.")
    run = start(caller, _statement(caller, body, adapter))
    if body.stream:
        return Streamed(_lines(run), run.leave)
    answered = await run.whole(request)
    if body.format == "arrow":
        return Response(await asyncio.to_thread(answered.arrow), media_type=ARROW)
    content = await asyncio.to_thread(answered.whole)
    return Response(content, media_type="application/json")


@router.post("/v1/sql/explain", response_model=Explained, responses=errors(404, 504))
async def explain_sql(body: ExplainBody, request: Request) -> Response:
    """What a statement would ask, without asking."""
    caller = Caller(request)
    backend = caller.backend(adapter=caller.adapter(body.model))
    desk = caller.server.kept(Desk)

    def explain(run: Run[Explained]) -> Explained:
        with desk.connection(backend, backend.cancel, run.stopping) as bare:
            connection = desk.keeping(bare, caller.asker.tenant)
            check_reads(body.query, connection.database, desk.tables.all)
            options = body.options | {"selectivity": body.selectivity}
            found = connection.explain(body.query, body.params, **options)
            return Explained(text=str(found), stages=plain(found.arrow().to_pylist()))

    explained = await start(caller, explain).whole(request)
    return Json(explained.model_dump())


@router.get("/v1/tables", response_model=TableList, responses=errors())
async def list_tables(request: Request) -> Response:
    """The tables that statements can read."""
    tables = Caller(request).server.kept(Desk).tables
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


def _statement(caller: Caller, body: SqlBody, adapter: str) -> Callable[[Run[Answered]], Answered]:
    """The task that runs a statement."""
    backend, desk = caller.backend(body.relquery, adapter), caller.server.kept(Desk)
    tenant = caller.asker.tenant

    def run(run: Run[Answered]) -> Answered:
        telling = Telling(run.tell if body.stream else None, run.stopping)
        asked = Recorded(backend) if body.record else backend
        with desk.connection(asked, backend.cancel, run.stopping) as bare:
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


async def _lines(run: Run[Answered]) -> AsyncIterator[bytes]:
    while (event := await run.news()) is not None:
        yield line(event)
    answered = await run.result()
    lines = answered.lines()
    while (found := await asyncio.to_thread(next, lines, None)) is not None:
        yield await asyncio.to_thread(line, found)
