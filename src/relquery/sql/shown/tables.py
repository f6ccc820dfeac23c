"""A result as a notebook shows it: its first rows, why values are missing, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from relquery.html.table import WHOLE, Cell, boxed, cut, details, lines, table
from relquery.sql.shown.floats import rounded, short

Reasons = Mapping[tuple[int, int], str]
"""Why a cell has no value, by (row of the result, column)."""

_LISTED = 10


class _Error(Protocol):
    @property
    def stage(self) -> str: ...
    @property
    def row(self) -> int: ...
    @property
    def error(self) -> str: ...


def result_table(
    names: Sequence[str], types: Iterable[pa.DataType], rows: Iterable[Sequence[Any]], why: Reasons
) -> str:
    """The rows as a table. why: the reasons of cells that have no value because of an error."""
    cells = (
        [_cell(value, why.get((at, column))) for column, value in enumerate(row)]
        for at, row in enumerate(rows)
    )
    return table(names, cells, [is_number(one) for one in types])


def result_html(shown: str, size: str, errors: Sequence[_Error], cost: str) -> str:
    """What a notebook shows. shown: the table. size, cost: a line each."""
    parts = [shown, lines([size])]
    if errors:
        listed = [f"{one.stage}, row {one.row}: {one.error}" for one in errors[:_LISTED]]
        more = len(errors) - _LISTED
        listed += [f"and {more:,} more in result.errors"] if more > 0 else []
        parts.append(details("Why values are missing", listed))
    if cost:
        parts.append(lines([cost]))
    return boxed(*parts)


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type are set to the right."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _cell(value: Any, reason: str | None) -> Cell:
    if value is None:
        return Cell("NULL", reason, "bad" if reason else "null")
    near = rounded(value)
    text = short(value) if isinstance(value, float) else _printable(near)
    return Cell(text, None if near == value or near is value else cut(_printable(value), WHOLE))


def _printable(value: Any) -> str:
    return "".join(
        one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in str(value)
    )
