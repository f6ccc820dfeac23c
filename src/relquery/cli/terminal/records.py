"""Rows one below the other, for results whose columns do not fit beside each other."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from relquery.cli.terminal.show import cell, printable
from relquery.sql.result import Result

_READABLE = 12
"""Columns of a terminal in which a wrapped text can be read."""
_GAP = 3
_INDENT = 2


def fits(result: Result, rows: int, width: int) -> bool:
    """Whether a terminal has room for all columns of the first rows, each wide enough to read."""
    columns = zip(result.columns, *result.head(rows).fetchall(), strict=True)
    needed = [
        min(_READABLE, max(cell_len(cell(one).plain) for one in column)) for column in columns
    ]
    return sum(needed) + _GAP * (len(needed) - 1) <= width


def records(result: Result, rows: int) -> RenderableType:
    """The first rows, with a line for each value."""
    shown: list[RenderableType] = []
    for number, row in enumerate(result.head(rows).fetchall(), 1):
        view = Table(box=None, show_header=False, pad_edge=False, padding=(0, _INDENT, 0, 0))
        view.add_column(style="bold", max_width=24, overflow="fold")
        view.add_column(overflow="fold")
        for name, value in zip(result.columns, row, strict=True):
            view.add_row(Text(printable(name)), cell(value))
        shown += [Text(f"row {number}", style="dim"), view]
    if len(result) > rows:
        shown.append(Text(f"first {rows} of {len(result)} rows", style="dim"))
    return Group(*shown)
