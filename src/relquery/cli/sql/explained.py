"""Showing in a terminal what is said of a query with LLM calls before it runs."""

from __future__ import annotations

from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from relquery.sql.explain.explanation import SqlExplanation

_WORDS = ("stage", "answers", "asks")


def shown(explanation: SqlExplanation) -> Group | Text:
    """A row per call, what is not known left out, and below it how calls would be cheaper."""
    if not explanation.calls:
        return Text(str(explanation))
    view = Table(title=explanation.title, title_justify="left", box=None, pad_edge=False)
    columns = explanation.columns()
    for title in columns:
        justify: JustifyMethod = "left" if title in _WORDS else "right"
        view.add_column(title, justify=justify, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        view.add_row(*map(Text, row))
    return Group(view, *map(Text, explanation.notes))
