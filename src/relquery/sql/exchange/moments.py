"""Dates and times: which of them Python can represent, and their values, with text for the rest."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relquery.arrays import Bools
from relquery.sql.exchange.texts import as_text

_DAY = 24 * 60 * 60
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # units per second
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
_ENDLESS = np.iinfo(np.int64).max  # 'infinity' in nanoseconds
_NANOSECONDS = 1000  # of a microsecond, the least that Python's times count


def is_moment(kind: pa.DataType) -> bool:
    """Whether values of a type are dates or times, and not nested."""
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind))


def is_beyond_python(column: pa.ChunkedArray) -> bool:
    """Whether a column has dates or times that Python cannot represent: 'infinity' or 24:00."""
    if not is_moment(column.type):
        return False
    limits, (first, last) = pc.min_max(_numbers(column)).as_py(), _limits(column.type)
    return limits["min"] is not None and not first <= limits["min"] <= limits["max"] <= last


def moments(array: pa.Array) -> list[Any]:
    """The values of dates or times. One that Python cannot represent is text as DuckDB has it."""
    beyond = _are_beyond(array)
    if not beyond.any():
        return _representable(array)
    is_text = pa.array(beyond)
    texts = iter(as_text(pa.chunked_array([array.filter(is_text)])).to_pylist())
    others = iter(_representable(array.filter(pc.invert(is_text))))
    return [next(texts if one else others) for one in beyond.tolist()]


def _representable(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":  # pandas' own otherwise
        array = array.cast(pa.timestamp("us", array.type.tz))
    values: list[Any] = array.to_pylist()
    return values


def _are_beyond(array: pa.Array) -> Bools:
    numbers = _numbers(array).fill_null(0).to_numpy(zero_copy_only=False)
    first, last = _limits(array.type)
    beyond: Bools = (numbers < first) | (numbers > last)
    if getattr(array.type, "unit", None) == "ns":
        beyond |= (np.abs(numbers) == _ENDLESS) | (numbers % _NANOSECONDS != 0)
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
