"""Stand-ins for calls, so that DuckDB itself checks a query and says which columns it has.

A call becomes an expression of its type over its fields. Equal calls become equal ones, so a call
in GROUP BY matches the same call in SELECT.
"""

from __future__ import annotations

from typing import TypeVar

from relquery.sql.binder.call import Call, makes_items
from relquery.sql.binder.numbers import needs_number
from relquery.sql.parser import build
from relquery.sql.parser.tree import Expression, Node, Star

N = TypeVar("N", bound=Node)


def stubbed(node: N) -> N:
    """A copy of a tree with stand-ins for its calls."""
    numeric = {id(one) for one in node.find_all(Call) if needs_number(one)}
    pairs = zip(node.walk(), node.copy().walk(), strict=True)
    # A copy has other nodes in the same order.
    copies = [(copy, id(own) in numeric) for own, copy in pairs if isinstance(own, Call)]
    whole = next(iter(copies))[0].root if copies else node.copy()
    for call, is_number in reversed(copies):
        assert isinstance(call, Call)
        stand_in = _stand_in(call, is_number).named(call.alias)
        if call is whole:
            whole = stand_in
        else:
            call.replace(stand_in)
    return whole  # type: ignore[return-value]


def _stand_in(call: Call, is_number: bool) -> Expression:
    fields: list[Expression] = [build.text(call.task.text)]
    for field in call.fields:
        if isinstance(field, Star) and not makes_items(field):
            if field.table:
                fields.append(build.column(field.table))  # the row as one value
        else:
            fields.append(field.copy())
    row = build.function("row", *fields)
    value: Expression = build.text("")
    if is_number:
        value = build.cast(build.number(0), build.plain_type("DOUBLE"))
    return build.when(build.operation(build.IS_NULL, row), value)
