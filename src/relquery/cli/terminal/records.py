"""One line for each value, where a terminal is too narrow for a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from relquery.cli.terminal.show import cell
from relquery.report import Report
from relquery.sql.render import printable
from relquery.sql.result import Result

_READABLE = 12
"""Columns of a terminal in which a wrapped value can be read."""
_FIGURE = 8
"""Columns in which a heading or a figure can."""
_WIDEST_NAME = 24
_GAP = 3


def fits(result: Result, rows: int, width: int) -> bool:
    """Whether a terminal has room for all columns of the first rows, each wide enough to read."""
    columns = zip(result.columns, *result.plain(rows), strict=True)
    return _fit([[cell(one).plain for one in column] for column in columns], width, _READABLE)


def records(result: Result, rows: int) -> RenderableType:
    """The first rows."""
    shown: list[RenderableType] = []
    for number, row in enumerate(result.plain(rows), 1):
        shown.append(Text(f"row {number}", style="dim"))
        shown.append(_lines(result.columns, map(cell, row)))
    if len(result) > rows:
        shown.append(Text(f"first {rows} of {len(result)} rows", style="dim"))
    return Group(*shown)


def are_readable(columns: Mapping[str, Sequence[str]], width: int) -> bool:
    """Whether a terminal has room for columns of figures."""
    return _fit([[name, *cells] for name, cells in columns.items()], width, _FIGURE)


def in_lines(columns: Mapping[str, Sequence[str]], title: str) -> Group:
    """The rows of such columns, without the cells that are empty."""
    shown: list[RenderableType] = [Text(title, style="italic")]
    for row in zip(*columns.values(), strict=True):
        known = {name: Text(value) for name, value in zip(columns, row, strict=True) if value}
        shown.append(_lines(known, known.values()))
    return Group(*shown)


def report_view(report: Report, width: int) -> RenderableType:
    """What a query cost."""
    columns = report.columns()
    return report if are_readable(columns, width) else in_lines(columns, report.title)


def _fit(columns: Iterable[Sequence[str]], width: int, readable: int) -> bool:
    needed = [min(readable, max(map(cell_len, column))) for column in columns]
    return sum(needed) + _GAP * (len(needed) - 1) <= width


def _lines(names: Iterable[str], values: Iterable[Text]) -> Table:
    view = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    view.add_column(style="bold", max_width=_WIDEST_NAME, overflow="fold")
    view.add_column(overflow="fold")
    for name, value in zip(names, values, strict=True):
        view.add_row(Text(printable(name)), value)
    return view
