"""Whether a call is asked for rows or for groups, by its place in its SELECT.

Noted on the nodes before the tree is taken apart, because copies keep notes and lose parents.
"""

from __future__ import annotations

from sqlglot import exp

from relquery.sql.read.scopes import calls_in
from relquery.sql.read.source import FIELD_NAME, call_number, unnumbered


def note_places(select: exp.Select) -> None:
    """Note for every call of a normalized SELECT its name as a field.

    The name is the number of the first call that is equal to it.
    """
    first: dict[str, int] = {}
    for call in sorted(calls_in(select), key=lambda call: call_number(call) or 0):
        number = first.setdefault(unnumbered(call), call_number(call) or 0)
        call.meta.setdefault(FIELD_NAME, f"llm_{number + 1}")
