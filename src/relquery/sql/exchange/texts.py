"""Converts columns to text if the target has no type for their values."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow as pa


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column as DuckDB writes them."""
    with duckdb.connect() as plain:
        plain.register("t", pa.table({"a": column}))
        texts: pa.ChunkedArray = plain.sql("SELECT CAST(a AS VARCHAR) FROM t").to_arrow_table()[0]
        return texts


def with_texts(
    table: pa.Table,
    names: list[str],
    text_of: Callable[[pa.ChunkedArray, pa.Field], pa.ChunkedArray | None],
) -> pa.Table:
    """The table with new names. text_of: a column's replacement; None to keep the column."""
    columns, fields = [], []
    for name, field, column in zip(names, table.schema, table.columns, strict=True):
        text = text_of(column, field)
        columns.append(column if text is None else text)
        fields.append(field.with_name(name) if text is None else pa.field(name, text.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def holds(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether `wanted` accepts a type or a type nested in it."""
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return wanted(kind) or any(holds(part, wanted) for part in parts)


def is_of_duckdb_alone(kind: pa.DataType) -> bool:
    """Whether hardly anything but DuckDB has this type: intervals and unions."""
    return bool(kind == pa.month_day_nano_interval() or pa.types.is_union(kind))
