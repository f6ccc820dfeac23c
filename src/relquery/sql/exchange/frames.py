"""Converts result columns for pandas and polars, which lack some of Arrow's types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from relquery.sql.exchange.moments import is_beyond_python
from relquery.sql.exchange.python import kind_of, to_plain
from relquery.sql.exchange.texts import as_text, holds, is_of_duckdb_alone, with_texts

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
    if pa.types.is_integer(column.type) and column.null_count and not _is_exact(column):
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
    return with_texts(table, names, _text_for_polars)


def _text_for_polars(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray | None:
    kind = kind_of(field)
    if kind is not None and kind.id == "hugeint" and not _has_digits(column):
        values = to_plain(column, field)
        return pa.chunked_array([[None if value is None else str(value) for value in values]])
    is_text = holds(column.type, is_of_duckdb_alone) or is_beyond_python(column)
    return as_text(column) if is_text else None


def _is_exact(integers: pa.ChunkedArray) -> bool:
    """Whether floats represent all these integers exactly."""
    limits = pc.min_max(integers).as_py()
    return limits["min"] is None or -_EXACT <= limits["min"] <= limits["max"] <= _EXACT


def _has_digits(decimals: pa.ChunkedArray) -> bool:
    limits = pc.min_max(decimals).as_py()
    return limits["min"] is None or max(map(abs, limits.values())) < 10**_DIGITS
