"""Bodies of /v1/sql and what is answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, JsonValue

from relquery.config import Order
from relquery.serve.api.fields import Sampled
from relquery.serve.body import WHOLE, example

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
        """Keywords of Connection.sql and of Connection.explain."""
        given = {"order": self.order, "guard": self.guard, "guard_rows": self.guard_rows}
        return self.settings | {name: each for name, each in given.items() if each is not None}


class SqlBody(Asked):
    """A statement to run. stream: JSON Lines, with progress. record: what was sent is answered
    too: true for 200 prompts of each stage, or their number.
    """

    model_config = example(
        {"query": "SELECT LLM('Is it good?', name) AS good FROM (VALUES ('Tea')) AS t(name)"}
    )
    on_error: Literal["null", "raise"] | None = None
    stream: bool = False
    format: Literal["json", "arrow"] = "json"
    record: bool | Annotated[int, Field(ge=0, le=1_000), WHOLE] = False


class ExplainBody(Asked):
    """A statement to explain. selectivity: the share of rows that pass each condition on answers,
    or one by stage.
    """

    model_config = example(
        {"query": "SELECT LLM('Is it good?', name) AS good FROM (VALUES ('Tea')) AS t(name)"}
    )
    selectivity: (
        Annotated[float, Field(ge=0, le=1)] | dict[str, Annotated[float, Field(ge=0, le=1)]] | None
    ) = None


class Column(BaseModel):
    """A column. type: DuckDB's."""

    name: str
    type: str


class SqlResult(BaseModel):
    """What a statement gives. Decimals, dates and integers beyond 2^53 are text."""

    columns: list[Column]
    rows: list[list[Any]]
    report: dict[str, Any]
    errors: list[dict[str, Any]]
    recording: list[dict[str, Any]] | None = None


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
