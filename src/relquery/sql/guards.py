"""For which rows a call's answer is read at all: CASE, OR and their like decide before it.

CASE WHEN a THEN LLM(...) WHEN b THEN x ELSE LLM(...) END
=> the first call where a, the second where neither a nor b
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from relquery.sql.aggregates import Aggregates
from relquery.sql.scopes import calls_in, has_call
from relquery.sql.source import call_number

Guards = dict[int, list[exp.Expr | None]]


def guards_of(select: exp.Select, aggregates: Aggregates) -> Guards:
    """By number of a call, a condition per place of it; None for a place read in every row."""
    guards: Guards = {}
    for call in calls_in(select):
        conditions = [
            condition
            for condition in _conditions(call, select)
            if not _needs_more_than_a_row(condition, aggregates)
        ]
        guard = exp.and_(*conditions) if conditions else None
        guards.setdefault(call_number(call) or 0, []).append(guard)
    return guards


def _conditions(call: exp.Expr, select: exp.Select) -> Iterator[exp.Expr]:
    """Conditions that all hold where the call is read.

    Those around a window function do not count: it reads other rows than the one it stands in.
    """
    node: exp.Expr = call
    while node.parent is not None and node.parent is not select:
        parent = node.parent
        if isinstance(parent, exp.Window):
            return
        yield from _conditions_of(node, parent)
        node = parent


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
                yield exp.Is(this=exp.paren(earlier), expression=exp.null())
        case exp.Or():
            yield _not(_other(node, parent))
        case exp.And():
            yield exp.NullSafeNEQ(this=exp.paren(_other(node, parent)), expression=exp.false())
        case exp.Filter() if node.arg_key == "this":
            yield parent.expression.this.copy()


def _when(branch: exp.Expr, case: exp.Expr | None) -> exp.Expr:
    """The condition of a WHEN; in `CASE x WHEN y` it is x = y."""
    condition = exp.paren(branch.this)
    operand = case.args.get("this") if case is not None else None
    if operand is None:
        return condition
    return exp.EQ(this=exp.paren(operand), expression=condition)


def _not(condition: exp.Expr) -> exp.Expr:
    """Not true: false or NULL."""
    return exp.NullSafeNEQ(this=exp.paren(condition), expression=exp.true())


def _other(node: exp.Expr, parent: exp.Expr) -> exp.Expr:
    other: exp.Expr = parent.expression if node.arg_key == "this" else parent.this
    return other


def _needs_more_than_a_row(condition: exp.Expr, aggregates: Aggregates) -> bool:
    """Whether a condition reads answers or other rows; leaving it out only asks for more rows."""
    return (
        has_call(condition)
        or condition.find(exp.Window, exp.Query) is not None
        or next(aggregates.inside(condition), None) is not None
    )
