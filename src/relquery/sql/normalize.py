"""Bringing one SELECT with calls into a plain form before it is planned.

Afterwards no item of the select list is a star, names and positions of the select list stand only
in ORDER BY, and join conditions with calls stand in WHERE.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql.database import Database
from relquery.sql.scopes import Context, calls_in, has_call
from relquery.sql.source import to_sql
from relquery.sql.sources import FIELD_NAME, Sources, is_star, star_columns

_BEFORE_ROWS = ("from_", "joins", "laterals", "sample", "limit", "offset")


def normalize(
    select: exp.Select, sources: Sources, database: Database, context: Context
) -> exp.Select:
    """A plain form of a SELECT, its join conditions moved, that gives the same rows."""
    select = select.copy()
    items: list[exp.Expr] = []
    for item in select.expressions:
        if is_star(item):
            items += star_columns(item, sources, database, select, context)
        else:
            _check_no_star(item)
            items.append(item)
    select.set("expressions", items)
    _replace_aliases(select, sources)
    _replace_positions(select)
    return select


def _check_no_star(item: exp.Expr) -> None:
    """Raises UnsupportedQueryError for a star that an expression makes several columns of."""
    for star in item.find_all(exp.Star, exp.Columns):
        parent = star.parent.parent if isinstance(star.parent, exp.Column) else star.parent
        if not isinstance(parent, exp.Func) and not in_subquery(star, item):
            raise UnsupportedQueryError(
                f"{to_sql(item)} makes several columns in a query with LLM calls. Name the "
                "columns instead."
            )


def move_join_conditions(select: exp.Select) -> exp.Select:
    """Move conditions with calls from the ON of inner joins to WHERE, where they mean the same.

    Raises UnsupportedQueryError for an outer join, where they do not.
    """
    select = select.copy()
    for join in select.args.get("joins") or ():
        condition = join.args.get("on")
        if not has_call(condition):
            continue
        if join.side or join.kind not in ("", "INNER") or join.method:
            raise UnsupportedQueryError(
                f"An LLM call stands in the ON clause of a {join.side or join.kind} join. Only an "
                "inner join can take one. Join on the other conditions in a subquery, call LLM on "
                "its rows."
            )
        parts = conjuncts(condition)
        plain = [part for part in parts if not has_call(part)]
        join.set("on", exp.and_(*plain) if plain else exp.true())
        select.where(*[part for part in parts if has_call(part)], copy=False)
    return select


def check_forms(tree: exp.Expr) -> None:
    """Raises UnsupportedQueryError for a call with a clause that belongs to an aggregate."""
    for call in calls_in(tree):
        parent = call.parent
        clause = _CLAUSES_OF_AGGREGATES.get(type(parent)) if call.arg_key == "this" else None
        for argument in call.expressions:
            if isinstance(argument, exp.Distinct | exp.Order):
                clause = _CLAUSES_OF_AGGREGATES[type(argument)]
        if clause:
            raise UnsupportedQueryError(
                f"An LLM call takes no {clause}: it is asked row by row, and equal inputs once. "
                f"Leave {clause} out."
            )


_CLAUSES_OF_AGGREGATES: dict[object, str] = {
    exp.Window: "OVER",
    exp.Filter: "FILTER",
    exp.Distinct: "DISTINCT",
    exp.Order: "ORDER BY",
    exp.IgnoreNulls: "IGNORE NULLS",
    exp.RespectNulls: "RESPECT NULLS",
    exp.WithinGroup: "WITHIN GROUP",
}


def check_places(select: exp.Select) -> None:
    """Raises UnsupportedQueryError for a call that would have to be answered before rows exist."""
    for clause in _BEFORE_ROWS:
        nodes = select.args.get(clause) or []
        for node in nodes if isinstance(nodes, list) else [nodes]:
            if has_call(node):
                raise UnsupportedQueryError(
                    f"An LLM call stands in the {clause.strip('_').upper()} clause, where it would "
                    "have to be answered before there are rows. Call it in SELECT or WHERE."
                )
    for call in calls_in(select):
        if call.find_ancestor(exp.Lambda, exp.Comprehension) is not None:
            raise UnsupportedQueryError(
                "An LLM call stands inside of a lambda or list comprehension. Call it per row: "
                "SELECT LLM('...', item) FROM t, unnest(items) AS u(item)."
            )
        if _is_condition(call):
            raise QueryError(
                "An LLM call stands where true or false is needed, and its answer is text. "
                "Compare it: LLM(...) = 'Yes'."
            )


def _is_condition(call: exp.Expr) -> bool:
    node, parent = call, call.parent
    while isinstance(parent, exp.Paren):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.If):
        is_value = isinstance(parent.parent, exp.Case) and parent.parent.args.get("this")
        return node.arg_key == "this" and not is_value
    return isinstance(parent, exp.Where | exp.Having | exp.Qualify | exp.And | exp.Or | exp.Not)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that a condition joins with AND."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return conjuncts(condition.this) + conjuncts(condition.expression)
    return [condition]


def without_alias(item: exp.Expr) -> exp.Expr:
    """The expression of an item of the select list."""
    return item.this if isinstance(item, exp.Alias) else item


def _replace_aliases(select: exp.Select, sources: Sources) -> None:
    """Replace names that the select list gives by what they name, as DuckDB allows everywhere.

    A column of the FROM clause goes first, but where a name is a whole key of ORDER BY: there it
    goes last, and the name stays.
    """
    aliases: dict[str, exp.Expr] = {}
    for item in select.expressions:
        _replace_in(item, aliases, sources)
        if isinstance(item, exp.Alias):
            aliases.setdefault(item.alias.lower(), item.this)
    for clause in ("where", "group", "having", "qualify"):
        if (node := select.args.get(clause)) is not None:
            _replace_in(node, aliases, sources)
    order = select.args.get("order")
    for key in order.expressions if order is not None else ():
        if not isinstance(key.this, exp.Column):
            _replace_in(key, aliases, sources)


def is_order_name(node: exp.Expr, names: Collection[str]) -> bool:
    """Whether a node is a key of ORDER BY that names a column of the result (lower-case names)."""
    return (
        isinstance(node, exp.Column)
        and isinstance(node.parent, exp.Ordered)
        and not node.table
        and node.name.lower() in names
    )


def _replace_positions(select: exp.Select) -> None:
    """Replace numbers in GROUP BY by the items of the select list that they count."""
    group = select.args.get("group")
    if group is not None and group.expressions:
        group.set("expressions", [item_at(key, select) for key in group.expressions])


def item_at(key: exp.Expr, select: exp.Select) -> exp.Expr:
    """A copy of the item of the select list whose position `key` gives; else `key` itself."""
    if isinstance(key, exp.Literal) and not key.is_string and key.this.isdigit():
        position = int(key.this)
        if 1 <= position <= len(select.expressions):
            return without_alias(select.expressions[position - 1]).copy()
    return key


def _replace_in(node: exp.Expr, aliases: dict[str, exp.Expr], sources: Sources) -> None:
    for column in list(node.find_all(exp.Column)):
        name = column.name.lower()
        if column.table or name not in aliases or sources.has(name) or in_subquery(column, node):
            continue
        replacement: exp.Expr = aliases[name].copy()
        if not isinstance(replacement, exp.Column | exp.Anonymous | exp.Literal):
            replacement = exp.paren(replacement, copy=False)
        replacement.meta[FIELD_NAME] = column.name
        column.replace(replacement)


def in_subquery(node: exp.Expr, top: exp.Expr) -> bool:
    """Whether a query stands between a node and `top`."""
    parent = node.parent
    while parent is not None and parent is not top:
        if isinstance(parent, exp.Query):
            return True
        parent = parent.parent
    return False
