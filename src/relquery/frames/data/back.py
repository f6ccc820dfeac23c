"""Gives a result back in the library that the input came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from relquery.frames.data.sources import Library, Source
from relquery.sql.result import Result


def give_back(result: Result, source: Source) -> Any:
    """The rows as the library of the source has them; see Frame.collect."""
    return _FORMS[source.library](result)


def with_index(frame: Any, numbers: pa.ChunkedArray, source: Source) -> Any:
    """A pandas frame whose rows have the index of those of the input with these numbers."""
    frame.index = source.index.take(numbers.to_numpy())
    return frame


def with_dtypes(frame: Any, dtypes: Mapping[str, Any]) -> Any:
    """A pandas frame whose columns have the dtypes of the input, where they hold the same values.

    A frame of relquery has what SQL and Arrow make of them: a categorical comes back as text.
    """
    for name, dtype in dtypes.items():
        column = frame[name]
        if column.dtype != dtype and (before := _as_before(column, dtype)) is not None:
            frame[name] = before
    return frame


def _as_before(column: Any, dtype: Any) -> Any:
    """A column with another dtype; None if pandas cannot convert it and back without a loss."""
    if dtype == "object" and column.dtype != "str":  # what else its values were is not known
        return None
    known = column.notna()
    try:
        cast = column.astype(dtype)
        if dtype == "object":
            cast[~known] = None
        again = cast[known].astype(column.dtype)
    except (TypeError, ValueError, ArithmeticError, NotImplementedError):
        return None  # of pandas; numbers that overflow, also decimal ones; types Arrow cannot cast
    return cast if cast.notna().equals(known) and again.equals(column[known]) else None


def _rows(result: Result) -> list[dict[str, Any]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result]


def _columns(result: Result) -> dict[str, list[Any]]:
    rows = result.fetchall()
    return {name: [row[at] for row in rows] for at, name in enumerate(result.columns)}


def _relation(result: Result) -> Any:
    import duckdb

    return duckdb.from_arrow(result.arrow())


_FORMS: dict[Library, Callable[[Result], Any]] = {
    "pandas": Result.df,
    "polars": Result.pl,
    "arrow": Result.arrow,
    "duckdb": _relation,
    "rows": _rows,
    "columns": _columns,
    "relquery": lambda result: result,
}
