"""Names the calls of a SELECT as fields of other calls.

The names are noted on the nodes before the tree is split: copies keep notes but lose parents.
"""

from __future__ import annotations

from sqlglot import exp

from relquery.sql.read.scopes import calls_in
from relquery.sql.read.source import FIELD_NAME, call_number, unnumbered


def note_places(select: exp.Select) -> None:
    """Note on every call of a normalized SELECT its name as a field.

    The name contains the number of the first call that is equal to it.
    """
    first: dict[str, int] = {}
    for call in sorted(calls_in(select), key=lambda call: call_number(call) or 0):
        number = first.setdefault(unnumbered(call), call_number(call) or 0)
        call.meta.setdefault(FIELD_NAME, f"llm_{number + 1}")
