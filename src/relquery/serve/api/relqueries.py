"""/v1/relqueries: a table and a template, answered in the order of the rows or as answers come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from relquery.prompt import Answer, Finish
from relquery.serve.api.tables import Ordered, RelQueryBody, order_rows, read_body, table_of
from relquery.serve.document import errors, standalone
from relquery.serve.errors import Json, bad_request, not_supported
from relquery.serve.server import Asked, Scope
from relquery.serve.streaming import (
    ARROW,
    NDJSON,
    AnswerStream,
    EventResponse,
    Part,
    failed_line,
    line,
)
from relquery.serve.tasks import Task, start
from relquery.serve.values import to_arrow
from relquery.unicode import valid

router = APIRouter(tags=["relquery"])


class RowAnswer(BaseModel):
    """The answer to a row. error: why there is none."""

    row: int
    answer: str | None
    error: str | None
    finish_reason: str
    usage: dict[str, Any]


class RelQueryResult(BaseModel):
    """The answers in the order of the rows, and what they cost."""

    answers: list[RowAnswer]
    report: dict[str, Any]


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
async def ask_table(request: Request, scope: Scope) -> Response:
    """Ask a question about every row of a table, as one relQuery."""
    body, beside = await read_body(request)
    model = scope.server.model(body.model)
    if body.stream and body.format == "arrow":
        raise not_supported("stream with format = arrow", "Leave one of them out.")
    template, sampling = body.form, body.sampling

    def order(task: Task[Ordered]) -> Ordered:
        del task
        table = table_of(body, beside)
        most = scope.server.config.max_rows
        if table.num_rows > most:
            raise bad_request(
                f"The table has {table.num_rows:,} rows; at most {most:,} may be.", code="rows"
            )
        return order_rows(table, template, body.order)

    ordered = await start(scope, order).result(scope)
    answering = Answering(ordered, body.as_)
    stream = scope.start([Asked(ordered.prompts, sampling, model)], body.relquery)
    if body.stream:
        return EventResponse(answering.lines(stream), stream, failed_line, NDJSON)
    parts = await stream.all(scope.receive)
    answers = sorted(answering.take(parts), key=lambda each: int(each["row"]))
    report = answering.report(stream)
    if body.format == "arrow":
        content = await asyncio.to_thread(as_arrow, answers, report)
        return Response(content, media_type=ARROW)
    return Json({"answers": answers, "report": report})


_FINISHES = {Finish.STOP: "stop", Finish.DECIDED: "stop", Finish.LENGTH: "length"}
_COLUMNS = pa.schema(
    {
        "row": pa.int64(),
        "answer": pa.string(),
        "error": pa.string(),
        "finish_reason": pa.string(),
        "prompt_tokens": pa.int64(),
        "cached_tokens": pa.int64(),
        "completion_tokens": pa.int64(),
    }
)


class Answering:
    """Collects answers. as_: "rows" holds each back until those of the rows before it are there."""

    def __init__(self, ordered: Ordered, as_: str) -> None:
        self._ordered, self._in_order = ordered, as_ == "rows"
        self._asked: list[Answer] = []
        self._waiting: dict[int, dict[str, Any]] = {}
        self._next = 0

    def take(self, parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
        """The answers to rows that can be given now."""
        for part in parts:
            if part.answer is not None:
                self._asked.append(part.answer)
                yield from self._given(part.at, part.answer)

    async def lines(self, stream: AnswerStream) -> AsyncIterator[bytes]:
        """The same as lines of JSON, and the report."""
        while parts := await stream.some():
            yield b"".join(line({"type": "answer"} | each) for each in self.take(parts))
        yield line({"type": "report", "report": self.report(stream)})

    def report(self, stream: AnswerStream) -> dict[str, Any]:
        """What the answers cost. Prompts are counted once for all rows that share them."""
        prompts = sum(each.prompt_tokens for each in self._asked)
        cached = sum(each.cached_tokens for each in self._asked)
        order = self._ordered.report
        latency = stream.latency
        return {
            "rows": sum(map(len, self._ordered.sharing)),
            "calls": len(self._asked),
            "errors": sum(each.error is not None for each in self._asked),
            "prompt_tokens": prompts,
            "cached_tokens": cached,
            "output_tokens": sum(each.output_tokens for each in self._asked),
            "hit_rate": cached / prompts if prompts else 0.0,
            "order": None if order is None else order.method,
            "phr": 0.0 if order is None else order.phr,
            "solver_seconds": 0.0 if order is None else order.seconds,
            "seconds": None if latency is None else latency.total,
        }

    def _given(self, at: int, answer: Answer) -> Iterator[dict[str, Any]]:
        for row in self._ordered.sharing[at]:
            shown = _shown(row, answer)
            if not self._in_order:
                yield shown
            else:
                self._waiting[row] = shown
        while self._in_order and self._next in self._waiting:
            yield self._waiting.pop(self._next)
            self._next += 1


def _shown(row: int, answer: Answer) -> dict[str, Any]:
    return {
        "row": row,
        "answer": answer.text,
        "error": answer.error,
        "finish_reason": _FINISHES.get(answer.finish, "error"),
        "usage": {
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "completion_tokens": answer.output_tokens,
        },
    }


def as_arrow(answers: list[dict[str, Any]], report: dict[str, Any]) -> bytes:
    """The answers as an Arrow IPC stream, whose schema has the report."""
    flat = [{**each, **each["usage"]} for each in answers]
    for each in flat:  # half a character is not text in Arrow
        for name in ("answer", "error"):
            if each[name] is not None:
                each[name] = valid(each[name])
    return to_arrow(pa.Table.from_pylist(flat, _COLUMNS), report=report)
