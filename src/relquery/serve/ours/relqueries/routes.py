"""/v1/relqueries"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.serve.answering import EventStream, whole
from relquery.serve.asked import Caller
from relquery.serve.documented import errors, standalone
from relquery.serve.errors import HttpError, not_supported
from relquery.serve.flow import Flow, Part
from relquery.serve.ours.lines import ARROW, NDJSON, Json, failed_line, line
from relquery.serve.ours.relqueries.answers import Answering, as_arrow
from relquery.serve.ours.relqueries.bodies import (
    RelQueryBody,
    RelQueryResult,
    read_body,
    table_of,
)
from relquery.serve.ours.relqueries.ordering import Ordered, order_rows
from relquery.serve.ours.runs import Run, start
from relquery.serve.ours.values import to_json
from relquery.serve.server import Asked

router = APIRouter(tags=["relquery"])

_RESULT: dict[int | str, dict[str, Any]] = {
    200: {
        "model": RelQueryResult,
        "description": "The answers; with stream, lines of JSON; with format arrow, a table",
        "content": {NDJSON: {"schema": {"type": "string"}}, ARROW: {}},
    }
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": standalone(RelQueryBody)},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["request", "table"],
                    "properties": {
                        "request": {"type": "string"},
                        "table": {"type": "string", "format": "binary"},
                    },
                }
            },
        },
    }
}


@router.post("/v1/relqueries", responses=errors(404, 422, 504) | _RESULT, openapi_extra=_BODY)
async def ask_table(request: Request) -> Response:
    """Ask a question about every row of a table, as one relQuery."""
    caller = Caller(request)
    body, beside = await read_body(request)
    adapter = caller.adapter(body.model)
    if body.stream and body.format == "arrow":
        raise not_supported("stream with format = arrow", "Leave one of them out.")
    template, sampling = body.form, body.sampling

    def order(run: Run[Ordered]) -> Ordered:
        del run
        table = table_of(body, beside)
        most = caller.server.config.max_rows
        if table.num_rows > most:
            raise HttpError(
                400, f"The table has {table.num_rows:,} rows; at most {most:,} may be.", "rows"
            )
        return order_rows(table, template, body.order)

    ordered = await start(caller, order).whole(request)
    answering = Answering(ordered, body.as_)
    asked = Asked(ordered.prompts, sampling, adapter)
    flow = caller.start([asked], declared=body.relquery)
    if body.stream:
        return EventStream(
            flow,
            answering.lines,
            last=lambda: line({"type": "report", "report": answering.report(flow)}),
            failed=failed_line,
            media_type=NDJSON,
        )
    return await _whole(request, flow, answering, body)


async def _whole(
    request: Request, flow: Flow, answering: Answering, body: RelQueryBody
) -> Response:
    found = await whole(request, flow)
    parts = (Part(at, answer=answer) for at, answer in enumerate(found))
    answers = sorted(answering.take(parts), key=lambda each: int(each["row"]))
    report = answering.report(flow)
    if body.format == "arrow":
        content = await asyncio.to_thread(as_arrow, answers, to_json(report))
        return Response(content, media_type=ARROW)
    return Json({"answers": answers, "report": report})
