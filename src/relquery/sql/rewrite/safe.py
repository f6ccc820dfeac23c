"""Which conditions cannot fail, so that they may be computed for rows that were dropped before.

`price < 20` cannot; `date::DATE < '2024-01-01'` can, and so can `text < 20`, which is a cast too.
"""

from __future__ import annotations

from sqlglot import exp

from relquery.sql.answers.kinds import Kinds
from relquery.sql.read.source import call_number
from relquery.sql.types.leaves import NUMBERS

_CONNECTIVES = (exp.And, exp.Or, exp.Not, exp.Paren, exp.Is, exp.Boolean, exp.Null)
_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Between, exp.In, exp.Like, exp.ILike,
)  # fmt: skip
_OF_TEXT = (exp.Lower, exp.Upper, exp.Trim, exp.DPipe)


def never_fails(condition: exp.Expr, kinds: Kinds) -> bool:
    """Whether DuckDB computes a condition without an error, whatever the row."""
    if isinstance(condition, _COMPARISONS):
        sides: list[exp.Expr] = list(condition.iter_expressions())
        return all(_is_simple(side, kinds) for side in sides) and _agree(sides, kinds)
    if isinstance(condition, exp.Column):
        return True
    return isinstance(condition, _CONNECTIVES) and all(
        never_fails(part, kinds) for part in condition.iter_expressions()
    )


def _is_simple(node: exp.Expr, kinds: Kinds) -> bool:
    if isinstance(node, exp.Column | exp.Literal | exp.Null | exp.Boolean | exp.TryCast):
        return not isinstance(node, exp.TryCast) or _is_simple(node.this, kinds)
    if isinstance(node, exp.Paren | exp.Coalesce):
        return all(_is_simple(part, kinds) for part in node.iter_expressions())
    if isinstance(node, _OF_TEXT):
        parts = list(node.iter_expressions())
        return all(_is_simple(part, kinds) and kinds.of(part) == "VARCHAR" for part in parts)
    if isinstance(node, exp.Neg):
        return isinstance(node.this, exp.Literal)
    return call_number(node) is not None


def _agree(sides: list[exp.Expr], kinds: Kinds) -> bool:
    """Whether values are compared without a cast that may fail.

    A text literal is cast when DuckDB reads the query, not for each row.
    """
    typed = [side for side in sides if not _is_open(side)]
    found = {_family(kinds.of(side)) for side in typed}
    return len(found) <= 1 and None not in found


def _is_open(node: exp.Expr) -> bool:
    node = node.unnest()
    return isinstance(node, exp.Null) or (isinstance(node, exp.Literal) and node.is_string)


def _family(kind: str | None) -> str | None:
    """A type, with one name for all numbers."""
    is_number = (
        kind is not None and kind.startswith((*NUMBERS, "DECIMAL")) and not kind.endswith("]")
    )
    return "number" if is_number else kind
