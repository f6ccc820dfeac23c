"""Which inner answers the fields of a call depend on, and in which rows.

LLM('...', CASE WHEN seen THEN LLM('...', title) ELSE title END)  =>  the inner one where seen
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.form.guards import guard_of
from relquery.sql.read.aggregates import Aggregates


@dataclass(frozen=True, slots=True)
class Need:
    """call: whose answer is read. reads: a condition over the rows; it is read where this holds."""

    call: int
    reads: exp.Expr


def needs_in(fields: Iterable[exp.Expr], aggregates: Aggregates) -> tuple[Need, ...]:
    """What fields need, their calls replaced by the columns of their answers."""
    places: dict[int, list[exp.Expr]] = {}
    for field in fields:
        for name in field.find_all(exp.Identifier):
            if (call := ours.call_of(name.name)) is not None:
                where = guard_of(name, field, aggregates) or exp.true()
                places.setdefault(call, []).append(where)
    return tuple(Need(call, exp.or_(*reads)) for call, reads in places.items())
