"""The fields of some rows as text, read from the database when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from relquery.arrays import Bools, Int64s
from relquery.sql.inputs.prompt import Form


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
