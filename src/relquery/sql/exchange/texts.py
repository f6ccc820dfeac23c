"""Converts columns to text if the target has no type for their values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

_DAY = 24 * 60 * 60
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # units per second
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column as DuckDB writes them."""
    with duckdb.connect() as plain:
        plain.register("t", pa.table({"a": column}))
        texts: pa.ChunkedArray = plain.sql("SELECT CAST(a AS VARCHAR) FROM t").to_arrow_table()[0]
        return texts


def is_beyond_python(column: pa.ChunkedArray) -> bool:
    """Whether a column has dates or times that Python cannot represent: 'infinity' or 24:00."""
    kind, first, last = column.type, _FIRST_DAY, _LAST_DAY
    if pa.types.is_date32(kind):
        numbers = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        day = _DAY * _UNITS[kind.unit]
        numbers, first, last = column.cast(pa.int64()), first * day, last * day + day - 1
    elif pa.types.is_time64(kind):
        numbers, first, last = column.cast(pa.int64()), 0, _DAY * _UNITS[kind.unit] - 1
    else:
        return False
    limits = pc.min_max(numbers).as_py()
    return limits["min"] is not None and not first <= limits["min"] <= limits["max"] <= last


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
