"""The fields of some rows as text: how DuckDB writes them, and when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from relquery.arrays import Bools, Int64s
from relquery.errors import QueryError
from relquery.sql.types.leaves import NUMBERS

# How a cell is written: as a JSON string, or unchanged because it already is JSON. A bag is a list
# of such cells, each a field of its own.
Form = Literal["string", "json", "bag of strings", "bag of json"]
OF_ITEM: dict[Form, Form] = {"bag of strings": "string", "bag of json": "json"}
"""The form of the items of a bag; other forms are no bags."""
_BLANKS = "e' \\t\\n\\r'"


@dataclass(frozen=True, slots=True)
class Cells:
    """The fields of some base rows. They are not kept, since a million rows take much memory.

    names, forms: per field. rows: base rows. read: gives a column of text per field for some base
    rows, in their order.
    """

    names: tuple[str, ...]
    forms: tuple[Form, ...]
    rows: Int64s
    read: Callable[[Int64s], pa.Table]

    def fetch(self) -> pa.Table:
        """A column of text per field; no columns if there are no fields."""
        return self.read(self.rows).rename_columns(list(self.names)) if self.names else pa.table({})

    def part(self, places: Int64s) -> Cells:
        """Some of the rows, by their place in `rows`."""
        return replace(self, rows=self.rows[places])


def are_null(texts: pa.Array, form: Form) -> Bools:
    """(texts,), whether cells are NULL. What is null in JSON is sent alike, and so is no less."""
    if form == "json":
        texts = pc.if_else(pc.equal(texts, "null"), None, texts)
    found: Bools = texts.is_null().to_numpy(zero_copy_only=False)
    return found


def as_text(expression: str, sql_type: str) -> tuple[str, Form]:
    """SQL that writes a value of DuckDB type `sql_type` as text, and the form of that text."""
    text = f"CAST({expression} AS VARCHAR)"
    if sql_type == "JSON":  # as written: to_json would round numbers
        return f"trim({text}, {_BLANKS})", "json"
    if sql_type in (*NUMBERS, "BOOLEAN"):
        return text, "json"
    nested = ("STRUCT(", "MAP(", "UNION(", "VARIANT")
    if sql_type.endswith("]") or sql_type.startswith(nested):
        return f"CAST(to_json({expression}) AS VARCHAR)", "json"
    return text, "string"


def bag_as_text(name: str, expression: str, sql_type: str) -> tuple[str, Form]:
    """SQL that writes a list as a JSON list of texts, one per item, and the form of that text.

    name: of the field. Raises QueryError if the type is not a list.
    """
    item = sql_type.removesuffix("[]")
    if item == sql_type:
        raise QueryError(
            f"BAG({name}) is of type {sql_type}; a bag must be a list, e.g. passages(...) or "
            "list(column)."
        )
    text, form = as_text("item", item)
    texts = f"list_transform({expression}, lambda item: {text})"
    written: Form = "bag of strings" if form == "string" else "bag of json"
    return f"CAST(to_json({texts}) AS VARCHAR)", written
