"""Finds the rows that read an expression at all: CASE, OR and similar operators may skip it.

CASE WHEN a THEN LLM(...) WHEN b THEN x ELSE LLM(...) END
=> the first call where a is true, the second where neither a nor b is
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from sqlglot import exp

from relquery.sql.form.normalize import has_grouping_sets
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.scopes import calls_in, has_call
from relquery.sql.read.source import call_number

Guards = dict[int, list[exp.Expr | None]]


def guards_of(select: exp.Select, aggregates: Aggregates) -> Guards:
    """For each call number, one condition per occurrence; None for one read in every row."""
    guards: Guards = {}
    for call in calls_in(select):
        guard = guard_of(call, select, aggregates)
        guards.setdefault(call_number(call) or 0, []).append(guard)
    return guards


def guard_of(node: exp.Expr, top: exp.Expr, aggregates: Aggregates) -> exp.Expr | None:
    """The condition under which a node is read in `top`, a SELECT or an expression of one.

    None if it is read in every row.

    Conditions are nested as in the query: an inner condition is computed only where the outer one
    holds. If computing it fails, the node counts as read.
    """
    conditions = [
        condition
        for condition in _conditions(node, top, aggregates)
        if not _is_of_more_than_a_row(condition, aggregates)
    ]
    if not conditions:
        return None
    nested = reduce(_only_where, reversed(conditions[:-1]), conditions[-1])
    safe = exp.Try(this=exp.Coalesce(this=nested, expressions=[exp.false()]))
    return exp.Coalesce(this=safe, expressions=[exp.true()])


def _only_where(inner: exp.Expr, outer: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=outer, true=inner)])


def _conditions(node: exp.Expr, top: exp.Expr, aggregates: Aggregates) -> list[exp.Expr]:
    """Conditions that all hold where a node is read, outer ones first.

    Conditions around a window function don't count: it reads rows other than its own. Neither do
    conditions around an aggregate with ROLLUP, CUBE or GROUPING SETS, where a key in the result
    may be NULL.
    """
    found: list[exp.Expr] = []
    has_sets = isinstance(top, exp.Select) and has_grouping_sets(top)
    while node.parent is not None and node is not top:
        parent = node.parent
        if isinstance(parent, exp.Window) or (has_sets and aggregates.is_aggregate(node)):
            break
        found = [*_conditions_of(node, parent), *found]
        node = parent
    return found


def _conditions_of(node: exp.Expr, parent: exp.Expr) -> Iterator[exp.Expr]:
    """What holds where `parent` reads `node`."""
    match parent:
        case exp.Case():
            branches = parent.args.get("ifs") or []
            earlier = branches[: node.index] if node.arg_key == "ifs" else branches
            yield from (_not(_when(branch, parent)) for branch in earlier)
        case exp.If() if node.arg_key in ("true", "false"):
            case = parent.parent if isinstance(parent.parent, exp.Case) else None
            holds = _when(parent, case)
            yield holds if node.arg_key == "true" else _not(holds)
        case exp.Coalesce() if node.arg_key == "expressions":
            for earlier in (parent.this, *parent.expressions[: node.index]):
                yield exp.Is(this=_whole(earlier), expression=exp.null())
        case exp.Or():
            yield _not(_other(node, parent))
        case exp.And():
            yield exp.NullSafeNEQ(this=_whole(_other(node, parent)), expression=exp.false())
        case exp.Filter() if node.arg_key == "this":
            yield parent.expression.this.copy()


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
    """Whether a condition depends on answers, on other rows or on random values.

    Ignoring such a condition only means that more rows are asked.
    """
    return (
        has_call(condition)
        or condition.find(exp.Window, exp.Grouping, exp.GroupingId) is not None
        or aggregates.has_query(condition)
        or next(aggregates.inside(condition), None) is not None
        or aggregates.is_volatile(condition)
    )
