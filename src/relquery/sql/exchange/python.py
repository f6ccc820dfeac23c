"""Result columns for Python, pandas, polars, CSV and Parquet, which lack some of Arrow's types.

In Python, text stands for dates and times that it cannot represent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, time
from itertools import accumulate, islice, pairwise, repeat
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from relquery.arrays import Bools
from relquery.sql.exchange.arrow import KIND, as_text, kind_of, parts_of
from relquery.sql.names import quoted_text

if TYPE_CHECKING:
    import pandas as pd

_DAY = 24 * 60 * 60
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # units per second
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
_ENDLESS = np.iinfo(np.int64).max  # 'infinity' in nanoseconds
_NANOSECONDS = 1000  # of a microsecond, the least that Python's times count


def to_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table as DuckDB's client gives them; as in `to_plain` if that cannot."""
    names = [f"c{index}" for index in range(table.num_columns)]
    if not names:
        return []
    items = [_as_read(name, field) for name, field in zip(names, table.schema, strict=True)]
    with duckdb.connect() as plain:
        plain.register("t", table.rename_columns(names))
        zone = re.search(r"tz=([^\]]+)\]", " ".join(map(str, table.schema.types)))
        try:
            if zone is not None:
                plain.execute(f"SET TimeZone = {quoted_text(zone[1])}")
            return plain.sql(f"SELECT {', '.join(items)} FROM t").fetchall()
        except (OverflowError, duckdb.Error):  # an interval, or a tuple without parts
            return list(zip(*map(to_plain, table.columns, table.schema), strict=True))


def _as_read(name: str, field: pa.Field) -> str:
    """SQL of a column of the type that it had in DuckDB."""
    kind = (field.metadata or {}).get(KIND)
    if kind is None or kind_of(field) is None:
        return name
    stated = kind.decode()
    in_json = re.sub(r"\bVARIANT\b", "JSON", stated)  # as Arrow has it
    return f"CAST(CAST({name} AS {in_json}) AS {stated})"


def to_plain(column: pa.ChunkedArray, field: pa.Field) -> list[Any]:
    """The values of a column for tables, JSON and frames: an interval keeps its months, a UUID is
    text, a tuple is a dict, a fixed-size list a list, and a map with nested keys a list of pairs.
    A BIGNUM is an integer.
    """
    kind = kind_of(field)
    return [value for chunk in column.chunks for value in _values(chunk, kind)]


def _values(array: pa.Array, kind: Any) -> list[Any]:
    """The values of an array of a DuckDB type, which may be unknown."""
    if not pa.types.is_nested(array.type):
        convert = _CONVERT.get(getattr(kind, "id", None))
        values = _moments(array) if _is_moment(array.type) else array.to_pylist()
        if convert is None:
            return values
        return [None if value is None else convert(value) for value in values]
    pairs = zip(_nested(array, kind), array.is_valid().to_pylist(), strict=True)
    return [value if is_valid else None for value, is_valid in pairs]


def _nested(array: pa.Array, kind: Any) -> Iterable[Any]:
    """A value for each row, whatever it is for NULL."""
    if pa.types.is_map(array.type):
        return _maps(array, *islice(_parts(kind), 2))
    if pa.types.is_union(array.type) or pa.types.is_struct(array.type):
        return _structs(array, kind)
    items = _values(array.flatten(), next(_parts(kind)))
    counts = array.value_lengths().fill_null(0).to_pylist()
    return (items[start:end] for start, end in pairwise(accumulate(counts, initial=0)))


def _structs(array: pa.Array, kind: Any) -> Iterable[Any]:
    """Of structs, tuples and unions."""
    names = [array.type.field(index).name for index in range(array.type.num_fields)]
    columns = [
        _values(array.field(index), part)
        for index, part in zip(range(len(names)), _parts(kind), strict=False)
    ]
    if pa.types.is_union(array.type):
        codes = array.type_codes.to_pylist()
        return (columns[code][row] for row, code in enumerate(codes))
    rows = zip(*columns, strict=True) if columns else repeat((), len(array))
    return (dict(zip(names, row, strict=True)) for row in rows)


def _maps(array: pa.Array, key: Any, value: Any) -> Iterator[Any]:
    offsets = array.offsets.to_pylist() or [0]
    first, size = offsets[0], offsets[-1] - offsets[0]
    keys = _values(array.keys.slice(first, size), key)
    values = _values(array.items.slice(first, size), value)
    for start, end in pairwise(offset - first for offset in offsets):
        yield _dict(list(zip(keys[start:end], values[start:end], strict=True)))


def _parts(kind: Any) -> Iterator[Any]:
    """The types inside a nested type, in order."""
    return repeat(None) if kind is None else (part for _, part in parts_of(kind))


def _dict(pairs: list[tuple[Any, Any]]) -> Any:
    """A dict, or the pairs themselves if a key is not hashable."""
    try:
        return dict(pairs)
    except TypeError:
        return pairs


def _time(text: str) -> time | str:
    try:
        return time.fromisoformat(text)
    except ValueError:  # 24:00
        return text


_CONVERT: dict[str | None, Callable[[Any], Any]] = {
    "hugeint": int,
    "uhugeint": int,
    "bignum": int,
    "time with time zone": _time,
    "variant": json.loads,
}


def _is_moment(kind: pa.DataType) -> bool:
    """Whether values of a type are dates or times, and not nested."""
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind))


def is_beyond_python(column: pa.ChunkedArray) -> bool:
    """Whether a column has dates or times that Python cannot represent: 'infinity' or 24:00."""
    if not _is_moment(column.type):
        return False
    limits, (first, last) = _min_max(_numbers(column)), _limits(column.type)
    return limits["min"] is not None and not first <= limits["min"] <= limits["max"] <= last


def _moments(array: pa.Array) -> list[Any]:
    """The values of dates or times. What Python cannot represent is text as DuckDB has it."""
    beyond = _are_beyond(array)
    if not beyond.any():
        return _representable(array)
    is_text = pa.array(beyond)
    texts = as_text(pa.chunked_array([array.filter(is_text)])).to_pylist()
    moments, others = iter(texts), iter(_representable(array.filter(pa.array(~beyond))))
    return [next(moments if is_inside else others) for is_inside in beyond.tolist()]


def _representable(array: pa.Array) -> list[Any]:
    if getattr(array.type, "unit", None) == "ns":  # pandas' own otherwise
        is_time = pa.types.is_time64(array.type)
        kind = pa.time64("us") if is_time else pa.timestamp("us", array.type.tz)
        array = array.cast(kind, safe=False)
    values: list[Any] = array.to_pylist()
    return values


def _are_beyond(array: pa.Array) -> Bools:
    numbers = _numbers(array).fill_null(0).to_numpy(zero_copy_only=False)
    first, last = _limits(array.type)
    beyond: Bools = (numbers < first) | (numbers > last)
    if getattr(array.type, "unit", None) == "ns":
        beyond |= np.abs(numbers) == _ENDLESS
        beyond |= numbers % _NANOSECONDS != 0
    return beyond


def _numbers(column: Any) -> Any:
    """Dates or times of an array or a column as integers in their unit."""
    return column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())


def _limits(kind: pa.DataType) -> tuple[int, int]:
    """The first and the last number of a type that Python can represent."""
    if pa.types.is_date32(kind):
        return _FIRST_DAY, _LAST_DAY
    day = _DAY * _UNITS[kind.unit]
    if pa.types.is_timestamp(kind):
        return _FIRST_DAY * day, _LAST_DAY * day + day - 1
    return 0, day - 1


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
    parts = (kind.field(index).type for index in range(kind.num_fields))
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
    limits = _min_max(numbers)
    return int(max(abs(limits["min"] or 0), abs(limits["max"] or 0)))


def _min_max(numbers: pa.ChunkedArray) -> Any:
    import pyarrow.compute as pc  # late, as it takes longer to import than plain SQL to run

    return pc.min_max(numbers).as_py()
