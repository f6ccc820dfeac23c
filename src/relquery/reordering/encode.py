"""A table as integers: each column's cells are codes into the column's distinct values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relquery.arrays import Int32s, Int64s
from relquery.errors import TableError


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A dictionary-encoded table of n rows and m columns.

    names: one per column; names may repeat.
    codes: (n, m), column-major; cell (r, c) is value `codes[r, c]` of column c. Codes of a column
        count from 0 in the order of first appearance.
    lengths: characters of every distinct value, all columns concatenated; NULL has length 0.
    offsets: (m + 1,), column c owns `lengths[offsets[c]:offsets[c + 1]]`.
    values: per column, its distinct values as text, by code; NULL is a separate value.
    labelled: whether a value is sent after the name of its column.
    """

    names: tuple[str, ...]
    codes: Int32s
    lengths: Int64s
    offsets: Int64s
    values: tuple[pa.Array, ...]
    labelled: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        rows, columns = self.codes.shape
        return rows, columns


def encode(data: Any) -> Columns:
    """Encode a table; columns that are not text are written as text.

    data: a mapping from names to columns, a list of mappings from names to values (a row without a
    name has NULL there), or anything with an Arrow interface: an Arrow, pandas or polars table.
    Integers of any size are written as text.

    Raises TableError for anything else, if columns differ in length, or for a column that has no
    text form.
    """
    if _are_rows(data):
        data = {name: [row.get(name) for row in data] for row in data for name in row}
    if isinstance(data, Mapping):
        names = list(map(str, data))
        arrays = [_as_array(str(name), column) for name, column in data.items()]
    else:
        data = _as_arrow(data)
        names, arrays = list(data.column_names), list(data.columns)
    del data  # so that each column is freed once it is encoded
    sizes = list(map(len, arrays))
    rows = sizes[0] if sizes else 0
    for name, size in zip(names, sizes, strict=True):
        if size != rows:
            raise TableError(
                f"Column '{name}' has {size} rows, but column '{names[0]}' has {rows}. "
                "Give every column the same number of rows."
            )
    codes = np.empty((rows, len(names)), dtype=np.int32, order="F")
    values = []
    arrays.reverse()
    for column, name in enumerate(names):
        codes[:, column], distinct = _encode_column(name, arrays.pop())
        values.append(distinct)
    return _columns(names, codes, values)


def columns_of(
    names: Sequence[str],
    codes: Int32s | Int64s,
    values: Sequence[pa.Array | Sequence[str]],
    *,
    labelled: bool = True,
) -> Columns:
    """Some rows of a table that is already encoded.

    codes: (n, m), index into the column's `values`; not every value has to occur. labelled: False
    if the values already contain what is sent before them.
    """
    rows, width = codes.shape
    renumbered = np.empty((rows, width), np.int32, order="F")
    kept = []
    for column in range(width):
        texts = values[column]
        if not isinstance(texts, pa.Array):
            texts = pa.array(texts, pa.large_string())
        renumbered[:, column], used = number_by_appearance(codes[:, column], len(texts))
        is_as_it_was = len(used) == len(texts) and bool((used[1:] > used[:-1]).all())
        kept.append(texts if is_as_it_was else texts.take(pa.array(used)))
    return replace(_columns(names, renumbered, kept), labelled=labelled)


def number_by_appearance(codes: Int32s | Int64s, count: int) -> tuple[Int32s, Int64s]:
    """(codes numbered in the order of first appearance, the old code of each).

    codes: (n,), from 0 to below `count`. O(n + count log count).
    """
    rows = len(codes)
    first = np.full(count, rows, np.int64)
    first[codes[::-1]] = np.arange(rows - 1, -1, -1)  # of equal codes, the last write stays
    used = np.argsort(first, kind="stable")[: int((first < rows).sum())]
    place = np.empty(count, np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    return place[codes], used


def _columns(names: Sequence[str], codes: Int32s, values: Sequence[pa.Array]) -> Columns:
    lengths = [
        pc.fill_null(pc.utf8_length(distinct), 0).to_numpy(zero_copy_only=False)
        for distinct in values
    ]
    sizes = [len(distinct) for distinct in values]
    return Columns(
        names=tuple(names),
        codes=codes,
        lengths=np.concatenate([np.empty(0, np.int64), *lengths]).astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        values=tuple(values),
    )


def _are_rows(data: Any) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    return isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data)


def _is_series(data: Any) -> bool:
    """Whether it is a column of pandas or polars."""
    return hasattr(data, "to_frame") and not hasattr(data, "columns")


def _as_arrow(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if not hasattr(data, "__arrow_c_stream__"):
        remedy = "Collect it first. " if hasattr(data, "collect") else ""
        if isinstance(data, str | Path):
            remedy = "Read the file first, e.g. with pyarrow.csv.read_csv or pandas.read_parquet. "
        raise TableError(
            f"{type(data).__name__} is not a table. {remedy}Give an Arrow, pandas or polars "
            "table, a list of rows as mappings, or a mapping from column names to columns."
        )
    if isinstance(data, pa.ChunkedArray) or _is_series(data):
        name = getattr(data, "name", None) or "column"
        raise TableError(
            f"{type(data).__name__} is one column, not a table. Give it a name: "
            f"{{{name!r}: values}}."
        )
    try:
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        said = ". ".join(map(str, error.args))
        raise TableError(
            f"The table cannot be read: {said}. Give each column a unique name and values of one "
            "type, or cast it to text."
        ) from error


def _as_array(name: str, column: Sequence[str | None]) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    if isinstance(column, str | bytes):
        raise TableError(
            f"Column '{name}' is of type {type(column).__name__}. Expected a list of values, one "
            "per row."
        )
    try:
        return pa.array(column, type=None if len(column) else pa.string())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kinds = _kinds(column)
        if kinds == ["int"]:  # beyond 64 bits
            return pa.array([None if value is None else str(value) for value in column])
        if len(kinds) > 1:
            raise TableError(
                f"Column '{name}' mixes types: {', '.join(kinds)}. Use a single type, or "
                "convert all values to text."
            ) from error
        raise TableError(
            f"Column '{name}' cannot be read as text: {str(error).rstrip('.')}. "
            "Give a list with one value per row, all of one type, or all as text."
        ) from error


def _kinds(column: object) -> list[str]:
    """The types of the values in a sequence, except NULL."""
    if not isinstance(column, Sequence | np.ndarray):
        return []
    return sorted({type(value).__name__ for value in column if value is not None})


def _encode_column(name: str, array: pa.Array | pa.ChunkedArray) -> tuple[Int32s, pa.Array]:
    """(codes, distinct values as text)."""
    if pa.types.is_nested(array.type):
        raise TableError(
            f"Column '{name}' of type {array.type} contains lists or structs, which have no "
            "standard text form. Convert each value to text, e.g. with json.dumps."
        )
    try:
        encoded = _decoded(array).dictionary_encode(null_encoding="encode")
        chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
        kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        distinct = _texts(_dictionary(chunks, encoded.type), kind)
    except pa.ArrowException as error:
        raise TableError(
            f"Column '{name}' of type {array.type} has no text form: {error}. Cast it to text."
        ) from error
    codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.concatenate([np.empty(0, np.int32), *codes]), distinct


def _dictionary(chunks: Sequence[pa.DictionaryArray], kind: pa.DictionaryType) -> pa.Array:
    """The dictionary of chunks that were encoded together: Arrow gives it to each of them."""
    if not chunks:
        return pa.array([], kind.value_type)
    distinct = chunks[-1].dictionary
    assert all(len(chunk.dictionary) == len(distinct) for chunk in chunks)
    return distinct


def _texts(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a column as text. kind: the column's type."""
    if pa.types.is_duration(kind):
        unit = 10 ** {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
        return pa.array([_hours(count, unit) for count in values.to_pylist()], pa.large_string())
    if pa.types.is_float16(kind):  # in the fewest digits that are that number
        values = pa.array([shortest(number) for number in values.to_pylist()], pa.float64())
    return values.cast(pa.large_string())


def shortest(number: float | None) -> float | None:
    """A half float as the number in fewest digits that is the same one: 0.1, not 0.099975586."""
    if number is None or number % 1 == 0:
        return number
    return float(str(np.float16(number)))


def _hours(count: int | None, unit: int) -> str | None:
    """A duration as DuckDB writes it: `26:00:03.5`. unit: so many are a second."""
    if count is None:
        return None
    seconds, rest = divmod(abs(count), unit)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    digits = f".{rest:0{len(str(unit)) - 1}}".rstrip("0") if rest else ""
    return f"{'-' if count < 0 else ''}{text}{digits}"


def _decoded(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The values as a type that Arrow can encode without losing NULL."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        if not pa.types.is_string_view(kind.value_type):
            return _decoded(array.cast(kind.value_type))
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        parts = [each.dictionary.cast(pa.large_string()).take(each.indices) for each in chunks]
        return pa.chunked_array(parts, pa.large_string())
    if pa.types.is_string_view(kind) or pa.types.is_string(kind):
        return array.cast(pa.large_string())  # a dictionary of small strings has room for 2 GiB
    if pa.types.is_duration(kind):
        return array.cast(pa.int64())
    if pa.types.is_float16(kind):
        array = array.cast(pa.float32())
    if pa.types.is_floating(kind):  # of the two zeros, one
        return pc.add(array, pa.scalar(0, array.type))
    return array.cast(pa.string()) if pa.types.is_null(kind) else array
