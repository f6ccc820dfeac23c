"""/v1/sql, /v1/sql/explain and /v1/tables: statements over the registered tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue
from starlette.responses import Response

from relquery.config import Order
from relquery.serve.body import WHOLE, Body, Declared, Integer, example
from relquery.serve.errors import Json, not_supported
from relquery.serve.server import Scope
from relquery.serve.sql_workers.statements import Statements, Task
from relquery.serve.sql_workers.work import Explain, Statement
from relquery.serve.streaming import ARROW, NDJSON, EventResponse, failed_line

router = APIRouter(tags=["relquery"])

Query = Annotated[str, Field(min_length=1, max_length=100_000)]
Params = list[JsonValue] | dict[str, JsonValue]
Label = Annotated[str, Field(min_length=1)]
Stops = Annotated[list[Label], Field(max_length=16)]
Share = Annotated[float, Field(ge=0, le=1)]


class Sampled(Body):
    """Sampling of the calls that do not set it; see Sampling. schema: a JSON Schema, or its text.

    model: as clients call it.
    """

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1), WHOLE] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0), WHOLE] | None = None
    seed: Integer | None = None
    stop: Stops | Label | None = None
    labels: Annotated[list[Label], Field(min_length=1, max_length=1000)] | None = None
    schema_: dict[str, Any] | str | None = Field(None, alias="schema")
    relquery: Declared | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What is set, as keywords of Connection.sql and of Sampling."""
        names = ("max_tokens", "temperature", "top_p", "top_k", "seed")
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        schema = json.dumps(self.schema_) if isinstance(self.schema_, dict) else self.schema_
        labels = None if self.labels is None else tuple(self.labels)
        given = {name: getattr(self, name) for name in names}
        given |= {"stop": stop or None, "labels": labels, "schema": schema}
        return {name: value for name, value in given.items() if value is not None}


class QueryBody(Sampled):
    """A statement. params: a list for `?` and `$1`, or an object for `$name`.

    order: of rows and fields. guard, guard_rows: whether the order changes answers; false for no
    guard.
    """

    query: Query
    params: Params | None = None
    order: Order | None = None
    guard: Share | Literal[False] | None = None
    guard_rows: Annotated[int, Field(ge=1, le=100_000), WHOLE] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of both, Connection.sql and Connection.explain."""
        given = {"order": self.order, "guard": self.guard, "guard_rows": self.guard_rows}
        return super().options | {name: each for name, each in given.items() if each is not None}


class SqlBody(QueryBody):
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


class ExplainBody(QueryBody):
    """A statement to explain. selectivity: the share of rows that pass each condition on answers,
    or one by stage. cost: what the calls cost at least, as expected and at most.
    """

    model_config = example(
        {"query": "SELECT LLM('Is it good?', name) AS good FROM (VALUES ('Tea')) AS t(name)"}
    )
    selectivity: Share | dict[str, Share] | None = None
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


@router.post("/v1/sql", responses=_RESULT)
async def run_sql(body: SqlBody, scope: Scope) -> Response:
    """Run one statement that reads the registered tables, with calls of the model in it."""
    model = scope.server.model(body.model)
    for name in ("stream", "record") if body.format == "arrow" else ():
        if getattr(body, name):
            raise not_supported(f"{name} with format = arrow", "Leave one of them out.")
    form: Any = "stream" if body.stream else body.format
    job = Statement(body.query, body.params, body.options, form, body.max_calls, body.rows)
    declared = scope.declared(body.relquery)
    task = scope.server.kept(Statements).start(scope, job, model, declared)
    if body.stream:
        return EventResponse(_lines(task), task, failed_line, NDJSON)
    media = ARROW if body.format == "arrow" else "application/json"
    return EventResponse(_parts(task), task, None, media)


@router.post("/v1/sql/explain", response_model=Explained)
async def explain_sql(body: ExplainBody, scope: Scope) -> Response:
    """What a statement would ask, without asking."""
    job, model = Explain(body.query, body.params, body.options), scope.server.model(body.model)
    task = scope.server.kept(Statements).start(scope, job, model)
    text, stages = await task.result(scope)
    return Json({"text": text, "stages": stages})


@router.get("/v1/tables", response_model=TableList)
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


async def _parts(task: Task) -> AsyncIterator[bytes]:
    """A result, as it comes; to read it may take as long as it takes."""
    while parts := await task.some():
        task.is_delivered = True
        for part in parts:
            yield part


async def _lines(task: Task) -> AsyncIterator[bytes]:
    """What a statement tells, as it comes."""
    yield b""  # the answer begins: an error comes as a line
    while parts := await task.some():
        yield b"".join(parts)
