"""A table and a question as they are sent, and the prompts that they are."""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, JsonValue, ValidationError, model_validator
from starlette.requests import Request

from relquery.arrays import Int64s
from relquery.config import Order
from relquery.errors import ConfigError, TableError, unknown
from relquery.prompt import Prompt, Role, Span
from relquery.reordering.encode import encode
from relquery.reordering.prompts.prompts import RowPrompt
from relquery.reordering.prompts.template import Template
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Report
from relquery.serve.api.fields import Sampled
from relquery.serve.body import Inner, check_json, example, invalid
from relquery.serve.errors import bad_request

Rows = list[dict[str, JsonValue]]
Columns = dict[str, list[JsonValue]]
_SOURCES = ("rows", "columns", "arrow")
_QUESTIONS = ("template", "prompt")
_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}
MOST_CELLS = 5_000_000


class TemplateBody(Inner):
    """See rq.Template."""

    text: str = "{fields}"
    system: str = ""
    field: str = "{name}: {value}"


class RelQueryBody(Sampled):
    """A table, as one of rows, columns, and arrow (a Base64 Arrow IPC stream); and a question, as
    one of template and prompt.

    template: `{fields}` stands for the fields of a row. prompt: a text that the fields follow.
    fields: columns that are sent; all by default. order: of rows and fields; see rq.reorder.
    answers: as rows of the table, or as they come.
    """

    model_config = example({"rows": [{"name": "Tea"}, {"name": "Coffee"}], "prompt": "Is it good?"})
    rows: Rows | None = None
    columns: Columns | None = None
    arrow: str | None = None
    template: str | TemplateBody | None = None
    prompt: Annotated[str, Field(min_length=1)] | None = None
    fields: Annotated[list[str], Field(min_length=1)] | None = None
    order: Order = "tree"
    stream: bool = False
    as_: Annotated[Literal["rows", "come"], Field(alias="as")] = "rows"
    format: Literal["json", "arrow"] = "json"

    @model_validator(mode="after")
    def _check(self) -> RelQueryBody:
        if sum(getattr(self, name) is not None for name in _QUESTIONS) != 1:
            raise bad_request("Give one of template and prompt.", "template")
        return self

    @property
    def form(self) -> Template:
        """The text around the fields. Raises ConfigError."""
        if self.prompt is not None:
            return Template(self.prompt.replace("{", "{{").replace("}", "}}"))
        if isinstance(self.template, TemplateBody):
            return Template(self.template.text, self.template.system, self.template.field)
        return Template.of(self.template)


async def read_body(request: Request) -> tuple[RelQueryBody, bytes | None]:
    """The body, and the Arrow stream beside it in a multipart form.

    A form has the parts `request`, which is the JSON, and `table`. Raises HttpError.
    """
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await asyncio.to_thread(_valid, await request.body()), None
    async with request.form(max_files=1, max_fields=2, max_part_size=1 << 20) as form:
        asked, table = form.get("request"), form.get("table")
        if asked is None or table is None or isinstance(table, str):
            raise bad_request(
                "The form must have the parts request (JSON) and table (a file).", code="form"
            )
        text = asked if isinstance(asked, str) else await asked.read()
        return await asyncio.to_thread(_valid, text), await table.read()


def _valid(text: str | bytes) -> RelQueryBody:
    check_json(text.encode() if isinstance(text, str) else text)
    try:
        return RelQueryBody.model_validate_json(text)
    except ValidationError as error:
        raise invalid(error.errors()) from error


def table_of(body: RelQueryBody, beside: bytes | None) -> pa.Table:
    """The table with the wanted columns. Raises HttpError, ConfigError and TableError."""
    given = [name for name in _SOURCES if getattr(body, name) is not None]
    if len(given) + (beside is not None) != 1:
        raise bad_request(
            "Give one table: rows, columns or arrow, or the part table of a form.", code="table"
        )
    table = _read(body, beside)
    if table.num_rows * table.num_columns > MOST_CELLS:
        raise TableError(f"The table has more than {MOST_CELLS:,} cells. Send fewer at once.")
    if not table.num_columns:
        raise TableError("The table is empty. Give at least one row and one column.")
    wanted = table.column_names if body.fields is None else body.fields
    for name in wanted:
        if table.column_names.count(name) != 1:
            raise ConfigError(unknown("column", name, dict.fromkeys(table.column_names)))
    return table.select(wanted)


def _in_columns(columns: Columns) -> pa.Table:
    """Raises TableError for a column whose values have several types."""
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values)
        except pa.ArrowException as error:
            raise TableError(_mixed(name, values) or f"Column '{name}': {error}") from error
    return pa.table(arrays)


def _mixed(name: str, values: list[JsonValue]) -> str | None:
    """Which value of a column is of another type than the first one; None if there is none."""
    kinds = [(row, _KINDS[type(each)]) for row, each in enumerate(values) if each is not None]
    for row, kind in kinds:
        if kind != kinds[0][1]:
            return (
                f"Column '{name}' has {kind} in row {row} and {kinds[0][1]} in row {kinds[0][0]} "
                "(rows are counted from 0). All values of a column must be of one type: send them "
                "as text."
            )
    return None


def _read(body: RelQueryBody, beside: bytes | None) -> pa.Table:
    try:
        if body.rows is not None:
            names = dict.fromkeys(name for row in body.rows for name in row)
            return _in_columns({name: [row.get(name) for row in body.rows] for name in names})
        if body.columns is not None:
            return _in_columns(body.columns)
        content = beside if body.arrow is None else b64decode(body.arrow, validate=True)
        table = pa.ipc.open_stream(content).read_all()
        table.validate(full=True)
    except (pa.ArrowException, binascii.Error, ValueError, TypeError, OverflowError) as error:
        raise TableError(f"The table cannot be read: {error}") from error
    return table


_POLISHING = 0.01
"""Share of the predicted time of inference that goes into the order of a small table, as in SQL."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Prompts to ask. report: what the order achieves; None for a table without rows.

    sharing: for each prompt, the rows that get its answer.
    """

    prompts: list[Prompt]
    sharing: list[list[int]]
    report: Report | None


def order_rows(table: pa.Table, template: Template, order: Order) -> Ordered:
    """The prompts of a table's rows. Takes time. Raises ConfigError and TableError."""
    columns = encode(table)
    if not columns.codes.shape[0]:
        return Ordered([], [], None)
    _, first, group = np.unique(columns.codes, axis=0, return_index=True, return_inverse=True)
    kept = np.sort(first)
    sharing = _sharing(first, group.reshape(-1))
    options: dict[str, Any] = {"polishing": _POLISHING} if order == "tree" else {}
    distinct = replace(columns, codes=np.asfortranarray(columns.codes[kept]))
    schedule = reorder(distinct, order, **options)
    prompts = list(schedule.prompts(template))
    rows = [sharing[int(kept[prompt.row])] for prompt in prompts]
    return Ordered([_prompt(each) for each in prompts], rows, schedule.report)


def _sharing(first: Int64s, group: Int64s) -> dict[int, list[int]]:
    """The rows that are equal to each first one, itself included."""
    found: dict[int, list[int]] = {int(row): [] for row in first}
    for row, at in enumerate(group.tolist()):
        found[int(first[at])].append(row)
    return found


def _prompt(row: RowPrompt) -> Prompt:
    system = (Span(row.system, Role.SYSTEM, begins=True),) if row.system else ()
    return (*system, Span(row.text, Role.USER, begins=True))
