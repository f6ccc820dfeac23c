"""Converts result columns to Python values."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import time
from typing import Any

import duckdb
import pyarrow as pa

from relquery.sql.exchange.export import KIND, parts_of
from relquery.sql.exchange.values import values_of

Convert = Callable[[Any], Any]


def to_python(column: pa.ChunkedArray, field: pa.Field) -> list[Any]:
    """The values of a column. Dates and times that Python cannot represent become text."""
    values = values_of(column)
    kind = kind_of(field)
    convert = None if kind is None else _converter(kind)
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]


def kind_of(field: pa.Field) -> Any:
    """The DuckDB type of a column; None if the field does not record it."""
    noted = (field.metadata or {}).get(KIND)
    return None if noted is None else duckdb.sqltype(noted.decode())


def _converter(kind: Any) -> Convert | None:
    """A function from Arrow's value to the DuckDB type's value; None if they are the same."""
    if kind.id in _CONVERT:
        return _CONVERT[kind.id]
    parts = {name: _converter(part) for name, part in parts_of(kind).items()}
    if kind.id == "map":
        return lambda pairs: _dict(pairs, parts["key"], parts["value"])
    if kind.id in ("list", "array") and (convert := parts["child"]):
        return lambda values: [_converted(value, convert) for value in values]
    if kind.id in ("struct", "tuple") and any(parts.values()):
        return lambda struct: {key: _converted(value, parts[key]) for key, value in struct.items()}
    return None


def _converted(value: Any, convert: Convert | None) -> Any:
    return value if value is None or convert is None else convert(value)


def _dict(pairs: list[tuple[Any, Any]], key: Convert | None, value: Convert | None) -> Any:
    """A dict, or the pairs themselves if a key is not hashable."""
    converted = [(_converted(one, key), _converted(other, value)) for one, other in pairs]
    try:
        return dict(converted)
    except TypeError:
        return converted


def _time(text: str) -> time | str:
    try:
        return time.fromisoformat(text)
    except ValueError:  # 24:00
        return text


_CONVERT: dict[str, Convert] = {
    "hugeint": int,
    "uhugeint": int,
    "bignum": int,
    "time with time zone": _time,
    "variant": json.loads,
}
