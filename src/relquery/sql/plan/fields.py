"""The fields of a call: their expressions and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from relquery.sql.read.from_clause import Sources
from relquery.sql.read.source import FIELD_NAME, readable, to_sql


@dataclass(frozen=True, slots=True)
class Field:
    """name: what the model sees. value: an expression over the plan's rows."""

    name: str
    value: exp.Expr

    @property
    def sql(self) -> str:
        """The value as SQL."""
        return to_sql(self.value)


def name_fields(fields: Iterable[tuple[exp.Expr, exp.Expr]], sources: Sources) -> tuple[Field, ...]:
    """Name (expression, value) pairs; a field given twice is sent once.

    A column keeps its own name, or becomes table.column if two fields of the call would clash.
    """
    distinct: dict[str, tuple[exp.Expr, exp.Expr]] = {}
    for expression, value in fields:
        distinct.setdefault(to_sql(value), (expression, value))
    short = [_name(expression, sources) for expression, _ in distinct.values()]
    counts = Counter(short)
    return tuple(
        Field(name if counts[name] == 1 else _qualified(name, expression, sources), value)
        for name, (expression, value) in zip(short, distinct.values(), strict=True)
    )


def _name(expression: exp.Expr, sources: Sources) -> str:
    if FIELD_NAME in expression.meta:
        return str(expression.meta[FIELD_NAME])
    if isinstance(expression, exp.Column):
        resolved = sources.resolve(expression)
        return resolved[1] if resolved else expression.name
    return readable(expression)


def _qualified(name: str, expression: exp.Expr, sources: Sources) -> str:
    if not isinstance(expression, exp.Column):
        return name
    resolved = sources.resolve(expression)
    table = resolved[0] if resolved else expression.table
    return f"{table}.{name}" if table else name
