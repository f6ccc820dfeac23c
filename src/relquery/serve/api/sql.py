"""/v1/sql, /v1/sql/explain and /v1/tables: statements over the registered tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue
from starlette.responses import Response

from relquery.backends.service.client import EngineClient
from relquery.config import Order
from relquery.serve.api.fields import Sampled
from relquery.serve.body import WHOLE, example
from relquery.serve.document import errors
from relquery.serve.errors import Json, not_supported
from relquery.serve.server import RequestScope, Scope
from relquery.serve.sql_workers.hosting import Statements
from relquery.serve.sql_workers.work import Explain, Job, Statement
from relquery.serve.streaming import ARROW, NDJSON, EventResponse, failed_line
from relquery.serve.tasks import Task, start

router = APIRouter(tags=["relquery"])

Query = Annotated[str, Field(min_length=1, max_length=100_000)]
Params = list[JsonValue] | dict[str, JsonValue]


class Asked(Sampled):
    """A statement. params: a list for `?` and `$1`, or an object for `$name`.

    order: of rows and fields. guard, guard_rows: whether the order changes answers; false for no
    guard.
    """

    query: Query
    params: Params | None = None
    order: Order | None = None
    guard: Annotated[float, Field(ge=0, le=1)] | Literal[False] | None = None
    guard_rows: Annotated[int, Field(ge=1, le=100_000), WHOLE] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of both, Connection.sql and Connection.explain."""
        given = {"order": self.order, "guard": self.guard, "guard_rows": self.guard_rows}
        return self.settings | {name: each for name, each in given.items() if each is not None}


class SqlBody(Asked):
    """A statement to run. stream: JSON Lines, with progress. record: what was sent is answered
    too: true for 200 prompts of each stage, or their number. max_calls: it is refused if it may ask
    more. rows: that are answered at most; the first ones.
    """

    model_config = example(
        {"query": "SELECT LLM('Is it good?', name) AS good FROM (VALUES ('Tea')) AS t(name)"}
    )
    on_error: Literal["null", "raise"] | None = None
    stream: bool = False
    format: Literal["json", "arrow"] = "json"
    record: bool | Annotated[int, Field(ge=0, le=1_000), WHOLE] = False
    max_calls: Annotated[int, Field(ge=0), WHOLE] | None = None
    rows: Annotated[int, Field(ge=1), WHOLE] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of Connection.sql."""
        return super().options | {"on_error": self.on_error, "record": self.record}


class ExplainBody(Asked):
    """A statement to explain. selectivity: the share of rows that pass each condition on answers,
    or one by stage. cost: what the calls cost at least, as expected and at most.
    """

    model_config = example(
        {"query": "SELECT LLM('Is it good?', name) AS good FROM (VALUES ('Tea')) AS t(name)"}
    )
    selectivity: (
        Annotated[float, Field(ge=0, le=1)] | dict[str, Annotated[float, Field(ge=0, le=1)]] | None
    ) = None
    cost: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of Connection.explain."""
        return super().options | {"selectivity": self.selectivity, "cost": self.cost}


class Column(BaseModel):
    """A column. type: DuckDB's."""

    name: str
    type: str


class SqlResult(BaseModel):
    """What a statement gives. Decimals, dates and integers beyond 2^53 are text. total_rows: where
    only the first were to be answered.
    """

    columns: list[Column]
    rows: list[list[Any]]
    report: dict[str, Any]
    errors: list[dict[str, Any]]
    recording: list[dict[str, Any]] | None = None
    total_rows: int | None = None


class Explained(BaseModel):
    """What a statement would ask. stages: the rows of EXPLAIN."""

    text: str
    stages: list[dict[str, Any]]


class TableShown(BaseModel):
    """A table. schema: "main", or the name of the DuckDB file that it comes from."""

    name: str
    schema_: Annotated[str, Field(alias="schema")]
    columns: list[Column]
    rows: int


class TableList(BaseModel):
    """The registered tables."""

    object: Literal["list"]
    data: list[TableShown]


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
    model = scope.server.model(body.model)
    if body.stream and body.format == "arrow":
        raise not_supported("stream with format = arrow", "Leave one of them out.")
    if body.record and body.format == "arrow":
        raise not_supported("record with format = arrow", "Leave one of them out.")
    form: Any = "stream" if body.stream else body.format
    job = Statement(body.query, body.params, body.options, form, body.max_calls, body.rows)
    task = _begun(scope, job, scope.backend(model, body.relquery))
    if body.stream:
        return EventResponse(_lines(task), task, failed_line, NDJSON)
    media = ARROW if body.format == "arrow" else "application/json"
    return EventResponse(_parts(task), task, None, media)


@router.post("/v1/sql/explain", response_model=Explained, responses=errors(404, 504))
async def explain_sql(body: ExplainBody, scope: Scope) -> Response:
    """What a statement would ask, without asking."""
    job = Explain(body.query, body.params, body.options)
    backend = scope.backend(scope.server.model(body.model))
    text, stages = await _begun(scope, job, backend).result(scope)
    return Json({"text": text, "stages": stages})


@router.get("/v1/tables", response_model=TableList, responses=errors())
async def list_tables(scope: Scope) -> Response:
    """The tables that statements can read."""
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


def _begun(scope: RequestScope, job: Job, backend: EngineClient) -> Task[Any]:
    """A job in a worker."""
    called = scope.server.names_of(scope.server.model(scope.model))
    return start(scope, partial(scope.server.kept(Statements).run, job, backend, called))


async def _parts(task: Task[Any]) -> AsyncIterator[bytes]:
    """A result, as it comes; to read it may take as long as it takes."""
    while parts := await task.some():
        task.is_delivered = True
        for part in parts:
            yield part


async def _lines(task: Task[Any]) -> AsyncIterator[bytes]:
    """What a statement tells, as it comes."""
    yield b""  # the answer begins: an error comes as a line
    while parts := await task.some():
        yield b"".join(parts)
