"""Floating-point numbers as printed tables show them: with six digits.

All digits before the point are kept, and two behind it, so amounts of money stay as they are.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from relquery.html import WHOLE, Cell, boxed, cut, details, lines, table

_DIGITS, _DECIMALS = 6, 2
_MOST = 15  # digits that all floats have


def short(value: float) -> str:
    """A number in a table."""
    whole = len(str(int(abs(value)))) if math.isfinite(value) and abs(value) >= 1 else 0
    digits = max(_DIGITS, whole + _DECIMALS)
    return repr(value) if digits > _MOST else f"{value:.{digits}g}"


def rounded(value: Any) -> Any:
    """A value whose numbers, inside lists and structs too, are those that a table shows."""
    if isinstance(value, float):
        return float(short(value))
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(rounded, value))
    return value


Reasons = Mapping[tuple[int, int], str]
"""Why a cell has no value, by (row of the result, column)."""

_LISTED = 10
_VIEW = "relquery.view."


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
        [_cell(value, why.get((index, column))) for column, value in enumerate(row)]
        for index, row in enumerate(rows)
    )
    return table(names, cells, [is_number(kind) for kind in types])


def result_html(shown: str, size: str, errors: Sequence[_Error], costs: Iterable[str]) -> str:
    """What a notebook shows. shown: the table. size: a line. costs: lines, of which some are
    empty."""
    parts = [shown, lines([size])]
    if errors:
        listed = [f"{error.stage}, row {error.row}: {error.error}" for error in errors[:_LISTED]]
        more = len(errors) - _LISTED
        listed += [f"and {more:,} more in result.errors"] if more > 0 else []
        parts.append(details("Why values are missing", listed))
    return boxed(*parts, lines(filter(None, costs)))


def with_view(table: pa.Table, text: str, html: str) -> pa.Table:
    """A table that is shown as a text, and in notebooks as HTML, wherever it is a result."""
    return table.replace_schema_metadata({f"{_VIEW}text": text, f"{_VIEW}html": html})


def view_of(table: pa.Table, kind: Literal["text", "html"]) -> str | None:
    """How such a table is shown; None for others."""
    view = (table.schema.metadata or {}).get(f"{_VIEW}{kind}".encode())
    return None if view is None else view.decode()


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type are set to the right."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _cell(value: Any, reason: str | None) -> Cell:
    if value is None:
        return Cell("NULL", reason, "bad" if reason else "null")
    near = rounded(value)
    text = short(value) if isinstance(value, float) else printable(str(near), "\n")
    return Cell(
        text, None if near == value or near is value else cut(printable(str(value), "\n"), WHOLE)
    )


def printable(text: str, kept: str = "") -> str:
    """A text in which control characters are written out, so that they do nothing to a terminal.

    kept: characters that stay.
    """
    return "".join(
        char if char.isprintable() or char in kept else repr(char)[1:-1] for char in text
    )


WIDTH = 80
"""Columns where there is no terminal."""

_BETWEEN = " | "
_LEAST = 8  # columns that a cell keeps, however many there are
_DOTS = "..."


def terminal_width() -> int:
    """Columns of the terminal, or what COLUMNS says."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


def aligned(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines with the cells below each other, and a rule below the first row.

    width: columns of the terminal. Cells are cut if they do not fit, and if there are too many
    columns for it, lines are longer.
    """
    natural = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widths = shares(natural, width - len(_BETWEEN) * (len(natural) - 1))
    lines = [_BETWEEN.join(map(_fitted, row, widths)).rstrip() for row in rows]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return lines


def shares(natural: Sequence[int], width: int) -> list[int]:
    """The width of each column: its natural one, or an equal share of what the others leave.

    At least _LEAST, so that there may be more in all than `width`.
    """
    widths, left = list(natural), width
    by_width = sorted(range(len(natural)), key=natural.__getitem__)
    for place, column in enumerate(by_width):
        share = max(left // (len(natural) - place), _LEAST)
        widths[column] = min(natural[column], share)
        left -= widths[column]
    return widths


def _fitted(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - len(_DOTS)) + _DOTS
