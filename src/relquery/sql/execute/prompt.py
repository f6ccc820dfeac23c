"""The prompt of a call (paper 000, appendix C): system text, query, fields as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Literal

from relquery.ir.lower import lower
from relquery.ir.nodes import Seq, Text
from relquery.prompt import Nest, Prompt, Reuse, Role, Span

SYSTEM = (
    "You are a data analyst. Use the provided JSON data to answer the user query based on the "
    "specified fields. Respond with only the answer, no extra formatting."
)
SEPARATOR = ",\n"

# How a cell is written: as a JSON string, or unchanged because it already is JSON.
Form = Literal["string", "json"]

_SYSTEM = Text(SYSTEM, Role.SYSTEM)
_TAIL = Text("\n}")
_NOT_JSON = {"nan", "inf", "-inf"}
_MOST_SPANS = 1 << 14  # that a template keeps: cells of many rows, not those of a million texts
_dump = json.JSONEncoder(ensure_ascii=False).encode
_JSON_TYPES = {
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
    "FLOAT",
    "DOUBLE",
}


class Template:
    """The prompts of one call. Parts that many rows have are made once for all of them.

    pieces: per field, the text of each distinct cell; see `piece`. modules: fields whose pieces are
    independent spans (paper 001): computed once, whatever is around them.
    """

    def __init__(
        self, prompt: str, pieces: Sequence[Sequence[str]], modules: Collection[int] = ()
    ) -> None:
        self._pieces, self._modules = pieces, modules
        head = f"Answer the below query:\n{prompt}"
        if pieces:
            head += "\n\nGiven the following data:\n{\n"
        self._begin = lower(Seq((_SYSTEM, Text(head))))
        self._end = lower(_TAIL)
        self._spans: dict[tuple[int, int, bool], Prompt] = {}

    def prompt(self, cells: Sequence[int], order: Sequence[int]) -> Prompt:
        """The prompt of a row. cells: piece number per field; order: which fields to send."""
        if not order:
            return self._begin
        *before, last = order
        inner = [span for field in before for span in self._part(field, cells[field], True)]
        return (*self._begin, *inner, *self._part(last, cells[last], False), *self._end)

    def _part(self, field: int, cell: int, goes_on: bool) -> Prompt:
        """What is sent for a cell. goes_on: whether another field follows."""
        found = self._spans.get((field, cell, goes_on))
        if found is None:
            text = self._pieces[field][cell]
            if field in self._modules:
                module = Span(Nest((Span(text),)), Role.USER, Reuse.INDEPENDENT, keep=1)
                found = (module, Span(SEPARATOR)) if goes_on else (module,)
            else:
                # As `lower` makes it of a text in a Bag, which takes ten times as long.
                found = (Span(text + SEPARATOR if goes_on else text),)
            if len(self._spans) == _MOST_SPANS:
                self._spans.clear()
            self._spans[field, cell, goes_on] = found
        return found


def piece(name: str, form: Form, cell: str | None) -> str:
    """A field of a row as sent: a label and a cell in JSON."""
    return f"{_dump(name)}: {_json(cell, form)}"


def cell_of(name: str, form: Form, text: str) -> str | None:
    """The cell of a piece. NULL for JSON null, which is sent alike."""
    written = text[len(_dump(name)) + 2 :]
    if written == "null":
        return None
    return str(json.loads(written)) if form == "string" else written


def as_text(expression: str, sql_type: str) -> tuple[str, Form]:
    """SQL that writes a value of DuckDB type `sql_type` as text, and the form of that text."""
    if sql_type in _JSON_TYPES:
        return f"CAST({expression} AS VARCHAR)", "json"
    if sql_type in ("JSON", "VARIANT") or _is_nested(sql_type):
        return f"CAST(to_json({expression}) AS VARCHAR)", "json"
    return f"CAST({expression} AS VARCHAR)", "string"


def _is_nested(sql_type: str) -> bool:
    return sql_type.endswith("]") or sql_type.startswith(("STRUCT(", "MAP(", "UNION("))


def _json(cell: str | None, form: Form) -> str:
    if cell is None:
        return "null"
    if form == "json" and cell not in _NOT_JSON:
        return cell
    return _dump(cell)
