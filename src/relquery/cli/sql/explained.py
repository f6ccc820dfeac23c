"""Showing in a terminal what is said of a query with LLM calls before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from relquery.cli.terminal.records import are_readable, in_lines
from relquery.sql.explain.explanation import (
    ANALYSIS_TITLE,
    SqlExplanation,
    analysis_cells,
    is_analysis,
)
from relquery.sql.render import view_of

if TYPE_CHECKING:
    from relquery.sql.preview import Preview

_WORDS = ("stage", "answers", "asks")


def shown(explanation: SqlExplanation, width: int | None = None) -> Group | Text:
    """A row per call, what is not known left out, and below it how calls would be cheaper.

    width: columns of the terminal; where it is too narrow, each figure has a line of its own.
    """
    if not explanation.calls:
        return Text(str(explanation))
    columns, title = explanation.columns(), explanation.title
    fits = width is None or are_readable(columns, width)
    view = _table(columns, title) if fits else in_lines(columns, title)
    return Group(view, *map(Text, explanation.notes))


def whole(preview: Preview) -> Group:
    """What a preview says of all rows."""
    notes = map(Text, preview.notes)
    return Group(*notes, Text("\nFor all rows:"), shown(preview.cost))


def drawn(table: pa.Table) -> Table | Text:
    """What EXPLAIN of calls among other statements returns, or EXPLAIN ANALYZE: a row per stage."""
    if is_analysis(table):
        return _table(dict(analysis_cells(table)), ANALYSIS_TITLE)
    return Text(view_of(table, "text") or "")


def _table(columns: Mapping[str, Sequence[str]], title: str) -> Table:
    view = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        justify: JustifyMethod = "left" if name in _WORDS else "right"
        view.add_column(name, justify=justify, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        view.add_row(*map(Text, row))
    return view
