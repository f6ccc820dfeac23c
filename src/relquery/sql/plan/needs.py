"""Which inner answers the fields of a call depend on, and in which rows.

LLM('...', CASE WHEN seen THEN LLM('...', title) ELSE title END)  =>  the inner call where `seen`
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
    """call: the call whose answer is read. reads: a condition; rows where it holds read it."""

    call: int
    reads: exp.Expr


def needs_in(fields: Iterable[exp.Expr], aggregates: Aggregates) -> tuple[Need, ...]:
    """What fields need. Their calls have already been replaced by their answer columns."""
    places: dict[int, list[exp.Expr]] = {}
    for field in fields:
        for name in field.find_all(exp.Identifier):
            if (call := ours.call_of(name.name)) is not None:
                where = guard_of(name, field, aggregates) or exp.true()
                places.setdefault(call, []).append(where)
    return tuple(Need(call, exp.or_(*reads)) for call, reads in places.items())
