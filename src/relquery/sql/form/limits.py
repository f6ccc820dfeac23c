"""Finds when ORDER BY and LIMIT can cut rows before any call is made."""

from __future__ import annotations

from sqlglot import exp

from relquery.sql.form.normalize import is_order_name, item_at
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.scopes import has_call

LIMITS = ("order", "limit", "offset")


def early_limits(select: exp.Select, aggregates: Aggregates) -> dict[str, exp.Expr] | None:
    """ORDER BY, LIMIT and OFFSET that need only the FROM clause; None if they must come last.

    `select` is normalized and has no predicate with calls.
    """
    args = select.args
    if not (args.get("limit") or args.get("offset")):
        return None
    if any(args.get(clause) for clause in ("distinct", "qualify", "sample")):
        return None
    if aggregates.in_select(select):
        return None
    if any(item.find(exp.Window, exp.Explode, exp.UDTF) for item in select.expressions):
        return None  # these create or number rows
    order = args.get("order")
    if order is not None:
        order = _without_names(order, select)
    if has_call(order) or (order is not None and order.find(exp.Var)):  # Var: ORDER BY ALL
        return None
    clauses = {"order": order, "limit": args.get("limit"), "offset": args.get("offset")}
    return {key: clause for key, clause in clauses.items() if clause is not None}


def _without_names(order: exp.Expr, select: exp.Select) -> exp.Expr:
    """ORDER BY with names and positions of the select list replaced by the expressions."""
    order = order.copy()
    named = {item.alias.lower(): item.this for item in select.expressions if item.alias}
    for key in order.expressions:
        if is_order_name(key.this, named):
            key.set("this", exp.paren(named[key.this.name.lower()]))
        else:
            key.set("this", item_at(key.this, select))
    return order
