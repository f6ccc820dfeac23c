"""Arguments of Python functions, as DuckDB gives them: Arrow columns, without NULL."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import pyarrow as pa

from relquery.errors import QueryError
from relquery.sql import names as ours

Columns = tuple[pa.ChunkedArray, ...]
Key = TypeVar("Key", bound=Hashable)


def check_count(columns: Columns, least: int, most: int, function: str) -> None:
    """Raises QueryError unless the number of arguments is right. function: in lower case."""
    if not least <= len(columns) <= most:
        usage = ours.USAGES[function]
        name = usage.partition("(")[0]
        count = "1 argument" if len(columns) == 1 else f"{len(columns)} arguments"
        raise QueryError(f"{name} was called with {count}. It is written {usage}.")


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are texts, as VARCHAR and ENUM have them."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def check_text(column: pa.ChunkedArray, function: str) -> None:
    """Raises QueryError unless questions are texts. A number is more likely a misplaced k."""
    if len(column) and not is_text(column.type):
        usage = ours.USAGES[function]
        raise QueryError(
            f"The question of {usage.partition('(')[0]} is of type {column.type}; it must be a "
            f"text. Write {usage}, or cast the question: question::VARCHAR."
        )


def texts_of(column: pa.ChunkedArray) -> list[str]:
    """The values of a column as texts."""
    return list(column.cast(pa.large_string()).to_pylist())


def lists_of(column: pa.ChunkedArray, function: str) -> list[list[str | None]]:
    """The values of a column of lists of texts. Raises QueryError for another type."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise QueryError(
            f"{ours.USAGES[function]} takes a list of texts, e.g. list(name); it was given {kind}."
        )
    return list(column.cast(pa.list_(pa.string())).to_pylist())


def numbers_of(
    columns: Columns, place: int, default: float, read: Callable[[object], Any]
) -> list[Any]:
    """The values of an argument that may be left out."""
    if len(columns) <= place:
        return [default] * len(columns[0])
    return [read(value) for value in columns[place].to_pylist()]


def count_of(value: object) -> int:
    """How many texts to find. Raises QueryError unless it is a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise QueryError(
            f"The number of texts to find is {_shown(value)}; it must be a whole number above 0."
        )
    return value


def _shown(value: object) -> str:
    """A number as it is, and a text in quotes; a Decimal would show its type."""
    return repr(value) if isinstance(value, str) else str(value)


def threshold_of(value: object) -> float:
    """The least similarity. Raises QueryError unless it is above 0 and at most 1."""
    try:
        threshold = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        threshold = -1.0
    if not 0 < threshold <= 1:
        raise QueryError(f"The threshold is {_shown(value)}; it must be above 0 and at most 1.")
    return threshold


def rows_by(keys: list[Key]) -> dict[Key, list[int]]:
    """The rows of each key, in the order of first appearance."""
    found: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return found
