"""What the place of a call in its SELECT asks of its answers.

Noted on the nodes before the tree is taken apart, because copies keep notes and lose parents.
"""

from __future__ import annotations

from sqlglot import exp

from relquery.sql.aggregates import Aggregates
from relquery.sql.numbers import needs_number
from relquery.sql.scopes import calls_in
from relquery.sql.source import call_number, readable

_NUMBER = "needs_number"
_PER_GROUP = "per_group"


def note_places(select: exp.Select, aggregates: Aggregates) -> None:
    """Note for every call of a normalized SELECT what `is_number` and `is_per_group` read."""
    keys = _group_keys(select)
    grouped = keys is not None and aggregates.in_select(select)
    for call in calls_in(select):
        call.meta[_NUMBER] = needs_number(call)
        call.meta[_PER_GROUP] = grouped and not (
            aggregates.around(call, select)
            or call.find_ancestor(exp.Group, exp.Where) is not None
            or _inside_call(call)
            or any(readable(call) in key for key in keys or ())
        )


def is_number(call: exp.Expr) -> bool:
    """Whether the answers are cast to DOUBLE."""
    return bool(call.meta[_NUMBER])


def is_per_group(call: exp.Expr) -> bool:
    """Whether the call stands beside aggregates, on group keys: one answer for the whole group."""
    return bool(call.meta[_PER_GROUP])


def _group_keys(select: exp.Select) -> list[str] | None:
    """The keys of GROUP BY as text; None for GROUP BY ALL, which takes calls as keys."""
    group = select.args.get("group")
    if group is None:
        return []
    if group.args.get("all"):
        return None
    return [readable(key) for key in group.find_all(exp.Expr) if key.parent is group]


def _inside_call(call: exp.Expr) -> bool:
    parent = call.parent
    while parent is not None and not isinstance(parent, exp.Query):
        if call_number(parent) is not None:
            return True
        parent = parent.parent
    return False
