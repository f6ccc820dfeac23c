"""Shows results, figures and progress in a terminal."""

from __future__ import annotations

import base64
import json
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from time import monotonic

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from relquery.cli.terminal.console import errors_console
from relquery.progress.tally import Waiting
from relquery.progress.watch import Watch, is_terminal, watching
from relquery.report import Report
from relquery.sql.render import printable, rounded, short
from relquery.sql.result import Result


def say(text: str, style: str | None = None) -> None:
    """Print a text as it is on standard error."""
    errors_console().print(text, style=style, markup=False, highlight=False)


def result_table(result: Result, rows: int) -> RenderableType:
    """The first `rows` rows of a result."""
    view = Table(show_edge=False, pad_edge=False)
    for name, column in zip(result.columns, result.table.columns, strict=True):
        numeric = str(column.type).startswith(("int", "uint", "float", "double", "decimal"))
        view.add_column(
            Text(printable(name)), justify="right" if numeric else "left", overflow="fold"
        )
    for row in result.plain(rows):
        view.add_row(*(cell(value) for value in row))
    if len(result) > rows:
        # Not the table's caption, which is wrapped at its width.
        return Group(view, Text(f"first {rows} of {len(result)} rows", style="dim italic"))
    return view


@contextmanager
def progress(title: str = "", waiting: Waiting | None = None) -> Iterator[Watch]:
    """A line per stage on standard error, removed at the end. If standard error is not a terminal,
    a line every Lines.EVERY seconds instead.

    waiting: until when nothing is sent.
    """
    wanted = True if is_terminal() else Lines(title)
    with watching(wanted, monotonic, title, waiting) as watch:
        assert watch is not None
        yield watch


class Lines:
    """Progress as lines, for logs: at most one every EVERY seconds."""

    EVERY = 15.0

    def __init__(self, title: str = "", clock: Callable[[], float] = monotonic) -> None:
        self._title, self._clock, self._told = title, clock, clock()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """See relquery.progress.watch.Advance."""
        now = self._clock()
        if now < self._told + self.EVERY:
            return
        self._told = now
        text = f"{self._title}{stage}: {done:,} of {total:,}"
        say(text)


@contextmanager
def shown_warnings(*ignored: type[Warning]) -> Iterator[None]:
    """What is warned of in this block is printed at its end, a line each."""
    with warnings.catch_warnings(record=True) as caught:
        for kind in ignored:
            warnings.simplefilter("ignore", kind)
        try:
            yield
        finally:
            for text in dict.fromkeys(str(each.message) for each in caught):
                say(f"Warning: {text}")


def to_json(value: object) -> str:
    """Strict JSON: no NaN or infinity (null), bytes as base64, dates and the like as text.

    Text, too, are decimals with more digits than a float has.
    """
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, pa.MonthDayNano):
        return {part: getattr(value, part) for part in ("months", "days", "nanoseconds")}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, bool | int | str | None) else str(value)


def _number(value: float | Decimal) -> float | str | None:
    number = float(value)
    if isinstance(value, Decimal) and Decimal(str(number)) != value:
        return str(value)
    return number if math.isfinite(number) else None


def cell(value: object) -> Text:
    """A value in a terminal."""
    if value is None:
        return Text("NULL", style="dim")
    return Text(printable(short(value) if isinstance(value, float) else str(rounded(value))))


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


def figures(
    columns: Mapping[str, Sequence[str]],
    title: str,
    width: int | None,
    words: Collection[str] = (),
    readable: int = _FIGURE,
    whole: str | None = None,
    lines: bool = False,
) -> RenderableType:
    """A row for each thing; where the terminal is too narrow, a line for each of its figures.

    width: of the terminal; None for as wide as it needs. words: the columns that are no figures.
    readable: the columns of a terminal in which a heading or a figure can be read. whole: the
    column that is not wrapped. lines: whether there are lines between columns.
    """
    if width is not None and not are_readable(columns, width, readable):
        return in_lines(columns, title)
    view = Table(show_edge=False, pad_edge=False) if lines else Table(box=None, pad_edge=False)
    for name in columns:
        side: JustifyMethod = "left" if name in words else "right"
        view.add_column(name, justify=side, overflow="fold", no_wrap=name == whole)
    for row in zip(*columns.values(), strict=True):
        view.add_row(*map(Text, row))
    return Group(Text(title, style="italic"), view)  # a title of the table is wrapped at its width


def are_readable(columns: Mapping[str, Sequence[str]], width: int, readable: int = _FIGURE) -> bool:
    """Whether a terminal has room for columns of figures."""
    return _fit([[name, *cells] for name, cells in columns.items()], width, readable)


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
