"""Showing in a terminal what is said of a query with LLM calls before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from relquery.cli.terminal.records import are_readable, in_lines
from relquery.sql.analyze import cells
from relquery.sql.explain.explanation import SqlExplanation
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


def analyzed(table: pa.Table) -> Table:
    """What EXPLAIN ANALYZE returns: a row per stage."""
    return _table(dict(cells(table)), "Predicted, given the rows that passed / measured")


def _table(columns: Mapping[str, Sequence[str]], title: str) -> Table:
    view = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        justify: JustifyMethod = "left" if name in _WORDS else "right"
        view.add_column(name, justify=justify, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        view.add_row(*map(Text, row))
    return view
