"""Finds when the rows that a SELECT returns are known before all of its calls are answered.

SELECT LLM(...) FROM t ORDER BY day LIMIT 3        => the limit cuts the rows of t
SELECT LLM(...) FROM t ORDER BY LLM(...) LIMIT 3   => the order is computed first; it cuts the rows
SELECT AI_RANK(...) AS r, LLM(...) FROM t ORDER BY r LIMIT 3   => the same, by the scores
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.form.normalize import as_key, is_order_name, item_at, without_alias
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.scopes import has_call
from relquery.sql.read.source import RANKS, unnumbered

LIMITS = ("order", "limit", "offset")
CUTS = ("windows", "qualify", "distinct", "limit", "offset")


def early_limits(
    select: exp.Select, names: Collection[str], aggregates: Aggregates
) -> dict[str, exp.Expr] | None:
    """ORDER BY, LIMIT and OFFSET that need only the FROM clause; None if they must come last.

    `select` is normalized. The limits cut the rows that are left after its WHERE.
    """
    cut = cut_of(select, names, aggregates)
    if cut is None or any(cut.args.get(clause) for clause in ("distinct", "qualify")):
        return None
    if has_call(cut.args.get("order")):
        return None
    return {key: cut.args[key] for key in LIMITS if cut.args.get(key)}


def cut_of(select: exp.Select, names: Collection[str], aggregates: Aggregates) -> exp.Select | None:
    """A SELECT without items that returns the rows that `select` returns, in their order.

    names: of its columns. None if it returns all, or something other than rows of its FROM clause.
    """
    args = select.args
    if not any(args.get(clause) for clause in ("limit", "offset", "qualify", "distinct")):
        return None
    distinct = args.get("distinct")
    if args.get("sample") or (distinct is not None and not distinct.args.get("on")):
        return None
    if aggregates.in_select(select):
        return None
    order = args.get("order")
    if order is not None:
        order = _without_names(order, select, frozenset(map(str.lower, names)))
        if order is None or order.find(exp.Var, exp.Window):  # Var: ORDER BY ALL
            return None
    for item in select.expressions:
        # These create or number rows, but the rows that rank first have the same ranks without
        # the others.
        if item.find(exp.Window, exp.Explode, exp.UDTF) and not _ranks_first(item, order, args):
            return None
    cut = exp.Select(**{clause: args.get(clause) for clause in CUTS}).copy()
    cut.set("order", order)
    if distinct is not None:
        on = cut.args["distinct"].args["on"]
        on.set("expressions", [item_at(key, select) for key in on.expressions])
    return cut


def in_base_order(order: exp.Expr | None) -> exp.Order:
    """ORDER BY for rows of a plan: equal ones are in the order of the base."""
    order = exp.Order(expressions=[]) if order is None else order.copy()
    order.append("expressions", exp.Ordered(this=exp.column(ours.ROW)))
    assert isinstance(order, exp.Order)
    return order


def _without_names(order: exp.Expr, select: exp.Select, names: frozenset[str]) -> exp.Expr | None:
    """ORDER BY with names and positions of the select list replaced by the expressions.

    None if a name is one that DuckDB gives to an expression.
    """
    order = order.copy()
    items = select.expressions
    named = {item.name.lower(): item for item in items if isinstance(item, exp.Column)}
    named |= {item.alias.lower(): item.this for item in items if item.alias}
    for key in order.expressions:
        if is_order_name(key.this, names):
            if key.this.name.lower() not in named:
                return None
            item = as_key(named[key.this.name.lower()].copy())
        elif (item := item_at(key.this, select)) is key.this:
            continue
        key.set("this", exp.paren(_key_of_rank(item) or item))  # not a name any more
    return order


def _ranks_first(
    item: exp.Expr, order: exp.Expr | None, clauses: Mapping[str, exp.Expr | None]
) -> bool:
    """Whether an item is the rank by which a SELECT takes its first rows.

    order: its ORDER BY, by expressions.
    """
    key = _key_of_rank(without_alias(item))
    if key is None or order is None or any(map(clauses.get, ("offset", "qualify", "distinct"))):
        return False
    first = order.expressions[0]
    return not first.args.get("desc") and _bare(first.this) == _bare(key)


def _key_of_rank(item: exp.Expr) -> exp.Expr | None:
    """What orders rows as AI_RANK does; None for another expression."""
    if RANKS not in item.meta:
        return None
    score = item.args["ifs"][0].args["true"].args["order"].expressions[0].this
    return exp.Sub(this=exp.Literal.number(1), expression=score.copy())


def _bare(key: exp.Expr) -> str:
    while isinstance(key, exp.Paren | exp.Try):
        key = key.this
    return unnumbered(key)
