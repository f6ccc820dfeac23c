"""The values of a column in Python, with text for dates and times that Python does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.sql.exchange.texts import as_text, first_and_last, is_moment

Texts = dict[tuple[pa.DataType, int], str]
_ENDLESS = np.iinfo(np.int64).max  # 'infinity' in nanoseconds
_NANOSECONDS = 1000  # of a microsecond, the least that Python's times count


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values, also those in lists, structs, maps and unions."""
    texts = _texts(column)
    return [_value(each, texts) for each in column] if texts else list(column.to_pylist())


def _texts(column: pa.ChunkedArray) -> Texts:
    """How DuckDB writes the dates and times that Python does not have, by type and number."""
    found: Texts = {}
    for leaf in (leaf for chunk in column.chunks for leaf in _leaves(chunk)):
        numbers = np.unique(_numbers(leaf))
        beyond = numbers[_is_beyond(leaf.type, numbers)]
        if len(beyond):
            small = pa.array(beyond).cast(pa.int32() if leaf.type == pa.date32() else pa.int64())
            texts = as_text(pa.chunked_array([small.cast(leaf.type)])).to_pylist()
            found |= {(leaf.type, int(one)): text for one, text in zip(beyond, texts, strict=True)}
    return found


def _numbers(leaf: pa.Array) -> Int64s:
    width = pa.int32() if leaf.type == pa.date32() else pa.int64()
    numbers: Int64s = leaf.drop_null().cast(width).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _is_beyond(kind: pa.DataType, numbers: Int64s) -> Any:
    first, last = first_and_last(kind)
    beyond = (numbers < first) | (numbers > last)
    if getattr(kind, "unit", None) == "ns":
        beyond |= (np.abs(numbers) == _ENDLESS) | (numbers % _NANOSECONDS != 0)
    return beyond


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays of dates and times in an array."""
    if is_moment(array.type):
        yield array
    for part in _parts(array):
        yield from _leaves(part)


def _parts(array: pa.Array) -> Iterable[pa.Array]:
    kind = array.type
    if pa.types.is_map(kind):
        return array.keys, array.items
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return [array.field(at) for at in range(kind.num_fields)]
    return [array.flatten()] if pa.types.is_nested(kind) else ()


def _value(scalar: pa.Scalar, texts: Texts) -> Any:
    kind = scalar.type
    if not scalar.is_valid or not pa.types.is_nested(kind):
        text = texts.get((kind, scalar.value)) if scalar.is_valid and is_moment(kind) else None
        return scalar.as_py() if text is None else text
    if pa.types.is_union(kind):
        return _value(scalar.value, texts)
    if pa.types.is_struct(kind):
        names = (kind.field(at).name for at in range(kind.num_fields))
        return {name: _value(scalar[at], texts) for at, name in enumerate(names)}
    if pa.types.is_map(kind):
        return [(_value(pair[0], texts), _value(pair[1], texts)) for pair in scalar.values]
    return [_value(each, texts) for each in scalar.values]
