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


def is_moment(kind: pa.DataType) -> bool:
    """Whether values of a type are dates or times, and not nested."""
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind))


def first_and_last(kind: pa.DataType) -> tuple[int, int]:
    """The limits of what Python can represent of a type of dates or times, in its unit."""
    if pa.types.is_date32(kind):
        return _FIRST_DAY, _LAST_DAY
    day = _DAY * _UNITS[kind.unit]
    if pa.types.is_timestamp(kind):
        return _FIRST_DAY * day, _LAST_DAY * day + day - 1
    return 0, day - 1


def is_beyond_python(column: pa.ChunkedArray) -> bool:
    """Whether a column has dates or times that Python cannot represent: 'infinity' or 24:00."""
    kind = column.type
    if not is_moment(kind):
        return False
    numbers = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    (first, last), limits = first_and_last(kind), pc.min_max(numbers).as_py()
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
