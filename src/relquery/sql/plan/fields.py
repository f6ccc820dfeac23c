"""The fields of a call: which expressions, under which names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from relquery.sql.read.from_clause import Sources
from relquery.sql.read.source import FIELD_NAME, readable


@dataclass(frozen=True, slots=True)
class Field:
    """name: what the model sees. sql: the value, over the plan's rows."""

    name: str
    sql: str


def name_fields(fields: Iterable[tuple[exp.Expr, str]], sources: Sources) -> tuple[Field, ...]:
    """Name (expression, SQL) pairs; what is given twice is sent once.

    A column goes by its own name, or as table.column where two fields of the call would clash.
    """
    distinct = {sql: expression for expression, sql in reversed(list(fields))}
    expressions = [(expression, sql) for sql, expression in reversed(distinct.items())]
    short = [_name(expression, sources) for expression, _ in expressions]
    counts = Counter(short)
    return tuple(
        Field(name if counts[name] == 1 else _qualified(name, expression, sources), sql)
        for name, (expression, sql) in zip(short, expressions, strict=True)
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
