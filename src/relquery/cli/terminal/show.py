"""Showing results, figures and progress in a terminal."""

from __future__ import annotations

import base64
import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from time import monotonic

import pyarrow as pa
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from relquery.progress.tally import Usd, Waiting
from relquery.progress.watch import Watch, is_terminal, watching
from relquery.sql.render import printable, rounded, short
from relquery.sql.result import Result


def errors_console() -> Console:
    """What is no result: progress, reports, errors."""
    return Console(stderr=True, soft_wrap=True)


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
def progress(
    title: str = "", usd: Usd | None = None, waiting: Waiting | None = None
) -> Iterator[Watch]:
    """A line per stage on standard error, removed at the end. If standard error is not a terminal,
    a line every Lines.EVERY seconds instead.

    usd: what an answer has cost. waiting: until when nothing is sent.
    """
    wanted = True if is_terminal() else Lines(title)
    with watching(wanted, monotonic, usd, title, waiting) as watch:
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
