"""Refuses comparisons of a function's value with a text that cannot be of its type.

AI_FILTER('Is it late?', message) = 'maybe'     'maybe' is no BOOLEAN
AI_SCORE('Is it late?', message) > 'high'       'high' is no DOUBLE

DuckDB would find that when it runs the comparison, after the calls.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql.functions.making import Made
from relquery.sql.host.database import Database

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)


def check_compared(node: exp.Expr, made: Made, written: str, database: Database) -> None:
    """node: the function, where it stands. written: how. Raises QueryError."""
    for text in _texts_beside(node):
        cast = exp.TryCast(this=text.copy(), to=exp.DataType.build(made.kind, dialect="duckdb"))
        (known,) = database.fetch(f"SELECT {cast.sql('duckdb')} IS NOT NULL").column(0).to_pylist()
        if not known:
            raise QueryError(
                f"{written} is compared with {text.sql('duckdb')}, but it is of type {made.kind}. "
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
