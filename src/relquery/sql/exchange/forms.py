"""Result columns for pandas, polars, CSV and Parquet, which lack some of Arrow's types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from relquery.sql.exchange.arrow import as_text, kind_of
from relquery.sql.exchange.python import is_beyond_python, to_plain

if TYPE_CHECKING:
    import pandas as pd

_EXACT = 2**53  # up to here a float represents every integer
_DIGITS = 38  # of polars' decimals


def to_series(column: pa.ChunkedArray, field: pa.Field) -> pd.Series:
    """For pandas. Uses Python objects if pandas has no type that keeps every digit."""
    import pandas as pd

    kind = kind_of(field)
    is_huge = kind is not None and kind.id in ("hugeint", "uhugeint", "bignum")
    if is_huge:
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            return pd.Series(to_plain(column, field), dtype=object)
    if pa.types.is_integer(column.type) and column.null_count and _most(column) > _EXACT:
        exact = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
        return pd.Series(column.to_pandas(types_mapper=exact.get))
    try:
        if not is_beyond_python(column):
            return pd.Series(column.to_pandas())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError):
        pass
    return pd.Series(to_plain(column, field), dtype=object)


def for_polars(table: pa.Table, names: list[str]) -> pa.Table:
    """The table with new names; columns become text if polars has no type for their values."""

    def text(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray | None:
        kind = kind_of(field)
        if kind is not None and kind.id == "hugeint" and _most(column) >= 10**_DIGITS:
            values = to_plain(column, field)
            return pa.chunked_array([[None if value is None else str(value) for value in values]])
        is_text = holds(column.type, _is_of_duckdb_alone) or is_beyond_python(column)
        return as_text(column) if is_text else None

    return _with_texts(table, names, text)


def for_csv(table: pa.Table, names: list[str]) -> pa.Table:
    """The table with new names; nested values, bytes and intervals as text in DuckDB's format."""

    def is_not_plain(kind: pa.DataType) -> bool:
        is_one = pa.types.is_nested(kind) or pa.types.is_binary(kind)
        return is_one or _is_of_duckdb_alone(kind)

    def text(column: pa.ChunkedArray, _: pa.Field) -> pa.ChunkedArray | None:
        is_text = holds(column.type, is_not_plain) or is_beyond_python(column)
        return as_text(column) if is_text else None

    return _with_texts(table, names, text)


def for_parquet(table: pa.Table, names: list[str]) -> pa.Table:
    """The table with new names; intervals, unions and structs without fields as text."""

    def is_missing(kind: pa.DataType) -> bool:
        is_empty = pa.types.is_struct(kind) and not kind.num_fields
        return is_empty or _is_of_duckdb_alone(kind)

    def text(column: pa.ChunkedArray, _: pa.Field) -> pa.ChunkedArray | None:
        return as_text(column) if holds(column.type, is_missing) else None

    return _with_texts(table, names, text)


def holds(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether `wanted` accepts a type or a type nested in it."""
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return wanted(kind) or any(holds(part, wanted) for part in parts)


def _with_texts(
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


def _is_of_duckdb_alone(kind: pa.DataType) -> bool:
    """Whether hardly anything but DuckDB has this type: intervals and unions."""
    return bool(kind == pa.month_day_nano_interval() or pa.types.is_union(kind))


def _most(numbers: pa.ChunkedArray) -> int:
    """The largest absolute value; 0 without values."""
    limits = pc.min_max(numbers).as_py()
    return int(max(abs(limits["min"] or 0), abs(limits["max"] or 0)))
