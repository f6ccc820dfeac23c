"""The prompt of a call (paper 000, appendix C): system text, query, fields as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from relquery.ir.nodes import Bag, Generate, Seq, Text
from relquery.prompt import Role, Sampling

SYSTEM = (
    "You are a data analyst. Use the provided JSON data to answer the user query based on the "
    "specified fields. Respond with only the answer, no extra formatting."
)
SEPARATOR = ",\n"

# How a cell is written: as a JSON string, or as it stands because it is JSON already.
Form = Literal["string", "json"]

_SYSTEM = Text(SYSTEM, Role.SYSTEM)
_TAIL = Text("\n}")
_NOT_JSON = {"nan", "inf", "-inf"}
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


@dataclass(frozen=True, slots=True)
class Template:
    """What all rows of one call share."""

    head: Text
    sampling: Sampling

    def tree(self, fields: tuple[Text, ...]) -> Generate:
        """One row's call. Only the fields may be reordered."""
        if not fields:
            return Generate(Seq((_SYSTEM, self.head)), self.sampling)
        return Generate(Seq((_SYSTEM, self.head, Bag(fields, SEPARATOR), _TAIL)), self.sampling)


def template(prompt: str, has_fields: bool, sampling: Sampling) -> Template:
    """The template of a call with this prompt."""
    head = f"Answer the below query:\n{prompt}"
    if has_fields:
        head += "\n\nGiven the following data:\n{\n"
    return Template(Text(head), sampling)


def field_pieces(name: str, form: Form, cells: Iterable[str | None]) -> list[Text]:
    """Every distinct cell of a field as the piece of the prompt that is sent for it."""
    label = json.dumps(name, ensure_ascii=False) + ": "
    return [Text(label + _json(cell, form)) for cell in cells]


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
    return json.dumps(cell, ensure_ascii=False)
