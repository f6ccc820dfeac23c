"""Results, figures and progress in a terminal."""

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
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from relquery.progress.stages import Waiting
from relquery.progress.watch import Watch, is_terminal, watching
from relquery.report import Report
from relquery.sql.render import is_number, printable, rounded, short
from relquery.sql.result import Result

Columns = Collection[tuple[str, Sequence[str | Text]]]
"""Headings, which may repeat, with their cells."""

_FIGURE, _READABLE = 8, 12
"""Columns of a terminal in which a heading or a figure can be read, and a value of a result."""
_WIDEST_NAME = 24
_GAP = 3


def errors_console() -> Console:
    """Where progress, reports and errors go."""
    return Console(stderr=True, soft_wrap=True)


def say(text: str, style: str | None = None) -> None:
    """Print a text as it is on standard error."""
    errors_console().print(text, style=style, markup=False, highlight=False)


def by_rows(given: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """The columns of some rows, which have the headings of the first."""
    rows = list(given)
    return {heading: [row[heading] for row in rows] for heading in rows[0]}


def table(
    columns: Mapping[str, Sequence[str]],
    title: str = "",
    width: int | None = None,
    words: Collection[str] = (),
    *,
    lines: bool = False,
    whole: str | None = None,
    readable: int = _FIGURE,
) -> RenderableType:
    """A row for each thing; where a terminal is too narrow, a line for each of its cells.

    width: of the terminal; None for as wide as needed. words: the columns that are no figures.
    lines: whether there are lines between columns. whole: the column that is not wrapped.
    readable: columns of the terminal in which a heading or a cell can be read.
    """
    if width is not None and not fits(columns.items(), width, readable):
        return in_lines(columns.items(), title)
    view = _grid(columns.items(), [name in words for name in columns], lines=lines, whole=whole)
    # Not a title of the table itself, which is wrapped at its width.
    return Group(Text(title, style="italic"), view) if title else view


def _grid(
    columns: Columns, are_words: Sequence[bool], *, lines: bool, whole: str | None = None
) -> Table:
    view = Table(show_edge=False, pad_edge=False) if lines else Table(box=None, pad_edge=False)
    for (name, _), is_word in zip(columns, are_words, strict=True):
        side: JustifyMethod = "left" if is_word else "right"
        view.add_column(Text(name), justify=side, overflow="fold", no_wrap=name == whole)
    for row in zip(*(cells for _, cells in columns), strict=True):
        view.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return view


def fits(columns: Columns, width: int, readable: int = _FIGURE) -> bool:
    """Whether a terminal has room for some columns, each wide enough to read."""
    all_cells = [[name, *map(str, cells)] for name, cells in columns]
    needed = [min(readable, max(map(cell_len, cells))) for cells in all_cells]
    return sum(needed) + _GAP * (len(needed) - 1) <= width


def in_lines(columns: Columns, title: str = "", *, numbered: bool = False) -> Group:
    """A line for each cell. numbered: whether rows are, and empty cells shown."""
    names = [name for name, _ in columns]
    shown: list[RenderableType] = [Text(title, style="italic")] if title else []
    for number, row in enumerate(zip(*(cells for _, cells in columns), strict=True), 1):
        view = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        view.add_column(style="bold", max_width=_WIDEST_NAME, overflow="fold")
        view.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            if numbered or str(cell):
                view.add_row(Text(name), Text(cell) if isinstance(cell, str) else cell)
        shown += [Text(f"row {number}", style="dim"), view] if numbered else [view]
    return Group(*shown)


def result_table(result: Result, rows: int, width: int | None = None) -> RenderableType:
    """The first rows of a result. width: as for `table`."""
    cells = list(zip(*result.plain(rows), strict=True)) or [()] * len(result.columns)
    named = zip(map(printable, result.columns), cells, strict=True)
    columns = [(name, list(map(cell, values))) for name, values in named]
    if width is not None and not fits(columns, width, _READABLE):
        view: RenderableType = in_lines(columns, numbered=True)
    else:
        are_words = [not is_number(kind) for kind in result.table.schema.types]
        view = _grid(columns, are_words, lines=True)
    if len(result) <= rows:
        return view
    return Group(view, Text(f"first {rows} of {len(result)} rows", style="dim italic"))


def cell(value: object) -> Text:
    """A value in a terminal."""
    if value is None:
        return Text("NULL", style="dim")
    return Text(printable(short(value) if isinstance(value, float) else str(rounded(value))))


def report_view(report: Report, width: int) -> RenderableType:
    """What a query cost."""
    columns = report.columns()
    if fits(columns.items(), width):
        columns.pop("order")  # the title has it
    return table(columns, report.title, width, ("stage",))


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
        if now >= self._told + self.EVERY:
            self._told = now
            say(f"{self._title}{stage}: {done:,} of {total:,}")


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
