"""Finds the rows that read an expression at all: CASE, OR and similar operators may skip it.

CASE WHEN a THEN LLM(...) WHEN b THEN x ELSE LLM(...) END
=> the first call where a is true, the second where neither a nor b is
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from relquery.sql.form.normalize import has_grouping_sets
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.scopes import has_call


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds where a node is read.

    is_side: whether it is the other side of an AND or OR. Then either side may be computed first;
    any other condition is computed before the node.
    """

    holds: exp.Expr
    is_side: bool = False


def guard_of(node: exp.Expr, top: exp.Expr, aggregates: Aggregates) -> exp.Expr | None:
    """The condition, without calls, under which a node is read in `top`: a SELECT or an expression.

    None if it is read in every row, as far as conditions without calls can tell.
    """
    found = _conditions(node, top, aggregates, where_it_counts=False)
    return guard([one.holds for one in found if not has_call(one.holds)])


def guard(conditions: Sequence[exp.Expr]) -> exp.Expr | None:
    """One condition for several that must all hold, outer ones first; None if there are none.

    They are nested as in the query: an inner condition is computed only where the outer one holds.
    If computing it fails, the node counts as read.
    """
    if not conditions:
        return None
    nested = reduce(_only_where, reversed(conditions[:-1]), conditions[-1])
    safe = exp.Try(this=exp.Coalesce(this=nested.copy(), expressions=[exp.false()]))
    return exp.Coalesce(this=safe, expressions=[exp.true()])


def conditions_of(node: exp.Expr, top: exp.Expr, aggregates: Aggregates) -> list[Condition]:
    """Conditions that all hold where the value of a node counts, outer ones first.

    They may contain calls. Where NULL does the same as false, as in WHERE, a side of an AND counts
    only if the other side is true, not if it is NULL.
    """
    return _conditions(node, top, aggregates, where_it_counts=True)


def _conditions(
    node: exp.Expr, top: exp.Expr, aggregates: Aggregates, where_it_counts: bool
) -> list[Condition]:
    """What holds where a node is read.

    Conditions around a window function don't count: it reads rows other than its own. Neither do
    conditions around an aggregate with ROLLUP, CUBE or GROUPING SETS, where a key in the result
    may be NULL, nor those that depend on more than their row. Ignoring a condition only means that
    more rows are asked.
    """
    found: list[Condition] = []
    has_sets = isinstance(top, exp.Select) and has_grouping_sets(top)
    while node.parent is not None and node is not top:
        parent = node.parent
        if isinstance(parent, exp.Window) or (has_sets and aggregates.is_aggregate(node)):
            break
        found = [*_conditions_of(node, parent, where_it_counts), *found]
        node = parent
    return [one for one in found if not _is_of_more_than_a_row(one.holds, aggregates)]


def _only_where(inner: exp.Expr, outer: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=outer.copy(), true=inner.copy())])


def _conditions_of(node: exp.Expr, parent: exp.Expr, where_it_counts: bool) -> Iterator[Condition]:
    """What holds where `parent` reads `node`."""
    match parent:
        case exp.Case():
            branches = parent.args.get("ifs") or []
            earlier = branches[: node.index] if node.arg_key == "ifs" else branches
            yield from (Condition(_not(_when(branch, parent))) for branch in earlier)
        case exp.If() if node.arg_key in ("true", "false"):
            case = parent.parent if isinstance(parent.parent, exp.Case) else None
            holds = _when(parent, case)
            yield Condition(holds if node.arg_key == "true" else _not(holds))
        case exp.Coalesce() if node.arg_key == "expressions":
            for earlier in (parent.this, *parent.expressions[: node.index]):
                yield Condition(exp.Is(this=_whole(earlier), expression=exp.null()))
        case exp.Or():
            yield Condition(_not(_other(node, parent)), is_side=True)
        case exp.And():
            other = _whole(_other(node, parent))
            if not (where_it_counts and _counts_only_as_true(parent)):
                other = exp.NullSafeNEQ(this=other, expression=exp.false())
            yield Condition(other, is_side=True)
        case exp.Filter() if node.arg_key == "this":
            yield Condition(parent.expression.this.copy())


def _counts_only_as_true(node: exp.Expr) -> bool:
    """Whether a condition is used where NULL does the same as false, as in WHERE."""
    parent = node.parent
    while isinstance(parent, exp.And | exp.Or | exp.Paren):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.If):
        is_value = isinstance(parent.parent, exp.Case) and parent.parent.args.get("this")
        return node.arg_key == "this" and not is_value
    return isinstance(parent, exp.Where | exp.Having | exp.Qualify)


def _when(branch: exp.Expr, case: exp.Expr | None) -> exp.Expr:
    """The condition of a WHEN; in `CASE x WHEN y` it is x = y."""
    condition = _whole(branch.this)
    operand = case.args.get("this") if case is not None else None
    if operand is None:
        return condition
    return exp.EQ(this=_whole(operand), expression=condition)


def _not(condition: exp.Expr) -> exp.Expr:
    """Not true: false or NULL."""
    return exp.NullSafeNEQ(this=_whole(condition), expression=exp.true())


def _whole(node: exp.Expr) -> exp.Expr:
    return exp.paren(node.copy(), copy=False)


def _other(node: exp.Expr, parent: exp.Expr) -> exp.Expr:
    other: exp.Expr = parent.expression if node.arg_key == "this" else parent.this
    return other


def _is_of_more_than_a_row(condition: exp.Expr, aggregates: Aggregates) -> bool:
    """Whether a condition depends on other rows or on random values."""
    return (
        condition.find(exp.Window, exp.Grouping, exp.GroupingId) is not None
        or aggregates.has_query(condition)
        or next(aggregates.inside(condition), None) is not None
        or aggregates.is_volatile(condition)
    )
