"""Gives a result back in the library that the input came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relquery.frames.data.sources import Library, Source
from relquery.sql.result import Result


def give_back(result: Result, source: Source) -> Any:
    """The rows as the library of the source has them; see Frame.collect."""
    return _FORMS[source.library](result)


def with_index(result: Result, source: Source) -> tuple[Any, Result]:
    """A pandas frame whose rows have the index of those of the input that they come from.

    The last column of the result has their numbers. Also gives the result without it.
    """
    numbers = result.table.columns[-1]
    shown = replace(result, table=result.table.remove_column(result.table.num_columns - 1))
    frame = shown.df()
    frame.index = source.index.take(numbers.to_numpy())
    return frame, shown


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
