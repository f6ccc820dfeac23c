"""Which conditions cannot fail, so that they may be computed for rows that were dropped before.

`price < 20` cannot; `date::DATE < '2024-01-01'` can, and so can `text < 20`, which is a cast too.
"""

from __future__ import annotations

from collections.abc import Sequence

from relquery.sql.binder.call import Call
from relquery.sql.binder.sources import Kinds
from relquery.sql.binder.stand_ins import compared_in
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Column, Constant, Expression, Function, Node, Operator
from relquery.sql.types.leaves import NUMBERS

_LIKE = ("~~", "!~~", "~~*", "!~~*")
_OF_TEXT = ("lower", "upper", "trim", "||")
MATCHES = "matches"
"""Note on a condition that other tables have a value, of the same type."""


def never_fails(condition: Expression, kinds: Kinds) -> bool:
    """Whether DuckDB computes a condition without an error, whatever the row."""
    sides = compared_in(condition)
    if sides is None and isinstance(condition, Function) and condition.name in _LIKE:
        sides = condition.values
    if sides is not None:
        return all(_is_simple(side, kinds) for side in sides) and _agree(sides, kinds)
    if isinstance(condition, Column):
        return kinds.of(condition) == "BOOLEAN"
    if isinstance(condition, tree.Conjunction):
        return all(never_fails(part, kinds) for part in condition.operands)
    if isinstance(condition, Operator) and len(condition.operands) == 1:
        (part,) = condition.operands
        if condition.kind in (build.IS_NULL, build.IS_NOT_NULL):
            return _is_simple(part, kinds) or never_fails(part, kinds)
        return condition.kind == build.NOT and never_fails(part, kinds)
    is_constant = isinstance(condition, Constant) and condition.kind in ("BOOLEAN", "NULL_LITERAL")
    return is_constant or MATCHES in condition.meta


def is_open_literal(node: Node) -> bool:
    """Whether a literal takes the type of what it is compared with."""
    return isinstance(node, Constant) and node.kind in ("STRING", "NULL_LITERAL")


def _is_simple(node: Expression, kinds: Kinds) -> bool:
    if isinstance(node, tree.Cast):
        is_open = node.is_try or kinds.of(node.value) == kinds.named(node.to)
        return is_open and _is_simple(node.value, kinds)
    if isinstance(node, Operator):
        return node.kind == build.COALESCE and all(_is_simple(one, kinds) for one in node.operands)
    if isinstance(node, Function) and node.name == "-" and len(node.arguments) == 1:
        return isinstance(node.values[0], Constant)
    if isinstance(node, Function):
        is_known = node.name.lower() in _OF_TEXT and not node.schema
        is_text = is_known and all(kinds.of(one) == "VARCHAR" for one in node.values)
        return is_text and all(_is_simple(one, kinds) for one in node.values)
    return isinstance(node, Column | Constant | Call)


def _agree(sides: Sequence[Expression], kinds: Kinds) -> bool:
    """Whether values are compared without a cast that may fail. A text literal is cast when DuckDB
    reads the query, not for each row."""
    found = {_family(kinds.of(side)) for side in sides if not is_open_literal(side)}
    return len(found) <= 1 and None not in found


def _family(kind: str | None) -> str | None:
    """A type, with one name for all numbers."""
    is_number = kind is not None and kind.startswith((*NUMBERS, "DECIMAL"))
    return "number" if is_number and kind is not None and not kind.endswith("]") else kind
