"""Showing in a terminal what EXPLAIN says of a query with LLM calls."""

from __future__ import annotations

from typing import Any

from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from relquery.sql.explain.explain import SCHEMA
from relquery.sql.result import Result

_ESTIMATED = ("sample", "characters")
_WORDS = ("stage", "answers", "asks")


def is_explanation(result: Result) -> bool:
    """Whether a result is what EXPLAIN says, and not rows that happen to be some."""
    return bool(result.table.schema.equals(SCHEMA))


def is_plan(result: Result) -> bool:
    """Whether a result is DuckDB's own explanation, a drawing in text."""
    return list(result.columns) == ["explain_key", "explain_value"]


def explanation(result: Result) -> Group:
    """A row per call, what is not known left out, and below it how calls would be cheaper."""
    calls = result.table.to_pylist()
    orders = " and ".join(sorted({call["order"] for call in calls}))
    title = f"{len(calls)} LLM {'call' if len(calls) == 1 else 'calls'}, {orders} order"
    view = Table(title=title, title_justify="left", box=None, pad_edge=False)
    columns = {name: [cell(call) for call in calls] for name, cell in _CELLS.items()}
    for name, cells in columns.items():
        if any(cells):
            justify: JustifyMethod = "left" if name in _WORDS else "right"
            view.add_column(name, justify=justify, overflow="fold")
    for row in zip(*filter(any, columns.values()), strict=True):
        view.add_row(*map(Text, row))
    hints = (f"{call['stage']}: {call['hint']}" for call in calls if call["hint"])
    return Group(view, *(Text(f"{hint}, and it takes one forward pass") for hint in hints))


def _asks(call: dict[str, Any]) -> str:
    return f"{call['prompt']} ({call['fields']})" if call["fields"] else call["prompt"]


def _count(call: dict[str, Any], name: str, about: str = "") -> str:
    """A number with what is known of it; empty if it is not known."""
    if call[name] is None:
        return ""
    return f"{'' if call['counts'] == 'exact' else 'at most '}{about}{call[name]:,}"


def _tokens(call: dict[str, Any]) -> str:
    return _count(call, "prompt_tokens", "about " if call["counted_by"] in _ESTIMATED else "")


def _most(call: dict[str, Any], name: str) -> str:
    return "" if call[name] is None else f"{call[name]:.2g}"


_CELLS = {
    "stage": lambda call: call["stage"],
    "rows": lambda call: _count(call, "rows"),
    "calls": lambda call: _count(call, "calls"),
    "from ledger": lambda call: f"{call['from_ledger']:,}" if call["from_ledger"] else "",
    "prompt tokens": _tokens,
    "refused": lambda call: f"{call['refused']:,}" if call["refused"] else "",
    "seconds at most": lambda call: _most(call, "seconds"),
    "USD at most": lambda call: _most(call, "usd"),
    "answers": lambda call: call["answers"],
    "asks": _asks,
}
