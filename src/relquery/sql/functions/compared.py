"""Refuses comparisons of a function's value with a text that cannot be of its type.

AI_FILTER('Is it late?', message) = 'maybe'     'maybe' is not a BOOLEAN
AI_SCORE('Is it late?', message) > 'high'       'high' is not a DOUBLE

DuckDB would find that when it runs the comparison, after the calls.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql.functions.making import Made
from relquery.sql.host.database import Database
from relquery.sql.read.source import DIALECT, to_sql

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)


def check_compared(node: exp.Expr, made: Made, written: str, database: Database) -> None:
    """Raises QueryError. node: the function in its statement. written: the call as written."""
    for text in _texts_beside(node):
        to = exp.DataType.build(made.kind, dialect=DIALECT, udt=True)
        value = exp.TryCast(this=text.copy(), to=to)
        if database.fetch(f"SELECT {to_sql(value)}").column(0).null_count:
            raise QueryError(
                f"{written} is compared with {to_sql(text)}, but it is of type {made.kind}. "
                f"{_REMEDIES.get(made.kind, 'Compare it with a value of that type.')}"
            )


_REMEDIES = {
    "BOOLEAN": "Use it as a condition by itself, with NOT before it for the others.",
    "DOUBLE": "Compare it with a number.",
}


def _texts_beside(node: exp.Expr) -> Iterator[exp.Literal]:
    """String literals that a node is compared with."""
    side = node
    while isinstance(side.parent, exp.Paren):
        side = side.parent
    comparison = side.parent
    if isinstance(comparison, _COMPARISONS):
        for other in comparison.iter_expressions():
            if other is not side and isinstance(other, exp.Literal) and other.is_string:
                yield other
