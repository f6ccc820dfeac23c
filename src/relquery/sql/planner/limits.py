"""Limits: when fewer rows are enough than a SELECT has.

The rows that a SELECT returns may be known before all of its calls are answered (`cut_of`):

SELECT LLM(...) FROM t ORDER BY day LIMIT 3        => the limit cuts the rows of t
SELECT LLM(...) FROM t ORDER BY LLM(...) LIMIT 3   => the order is computed first; it cuts the rows
SELECT AI_RANK(...) AS r, LLM(...) FROM t ORDER BY r LIMIT 3   => the same, by the scores

And a statement may need only the first rows that its SELECTs with calls give (`enough_of`):

SELECT c.a FROM (SELECT k, LLM('...', text) AS a FROM t) AS c JOIN g USING (k) LIMIT 3

What is left of it once the calls are answered reads the table of an inner SELECT, and gives more
rows the more that table has. So it can stop at three.
"""

from __future__ import annotations

from collections.abc import Collection

from relquery.sql import names as ours
from relquery.sql.binder.call import RANKS, has_call
from relquery.sql.binder.functions import FunctionCatalog, has_window, makes_rows
from relquery.sql.binder.normalize import NOT_A_NAME, as_key, is_order_name, item_at, unnamed
from relquery.sql.binder.sources import entry_of
from relquery.sql.optimizer.push_limits import limits_of
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import (
    Case,
    Column,
    Entry,
    Expression,
    Node,
    Order,
    Query,
    Select,
)


def stops_early(cut: Select) -> bool:
    """Whether a cut by LIMIT, or to the first row of each group, needs only the FROM clause, and no
    calls."""
    is_one = cut.distinct is None or cut.limit is None
    return is_one and cut.qualify is None and not has_call(cut)


def cut_of(select: Select, names: Collection[str], functions: FunctionCatalog) -> Select | None:
    """A SELECT without items that returns the rows that `select` returns, in their order.

    select: normalized. names: of its columns. None if it returns all, or something other than rows
    of its FROM clause.
    """
    distinct, limit, order = select.distinct, select.limit, select.order
    if limit is None and select.qualify is None and distinct is None:
        return None
    if select.sample is not None or (distinct is not None and not distinct.on):
        return None
    if functions.in_select(select):
        return None
    keys = [] if order is None else _without_names(order, select, names)
    if keys is None or any(has_window(key) or key.find(tree.Star) for key in keys):
        return None
    for item in select.items:
        # These create or number rows, but the rows that rank first have the same ranks without
        # the others.
        if (has_window(item) or makes_rows(item)) and not _ranks_first(item, keys, select):
            return None
    cut = Select(qualify=None if select.qualify is None else select.qualify.copy())
    if distinct is not None:
        distinct = distinct.copy()
        distinct.on = [item_at(key, select) for key in distinct.on]
    for modifier in (distinct, Order(orders=keys) if keys else None, limit and limit.copy()):
        if modifier is not None:
            build.set_modifier(cut, type(modifier), modifier)
    return cut


def in_base_order(order: Order | None) -> Order:
    """ORDER BY for rows of a plan: equal ones are in the order of the base."""
    keys = [] if order is None else [key.copy() for key in order.keys]
    return Order(orders=[*keys, build.ordered(build.column(ours.ROW))])


def _without_names(
    order: Order, select: Select, names: Collection[str]
) -> list[tree.Ordered] | None:
    """Keys of ORDER BY with names and positions of the select list replaced by the expressions.

    None if a name is one that DuckDB gives to an expression.
    """
    keys, items = order.copy().keys, select.items
    named: dict[str, Expression] = {
        item.name.lower(): item for item in items if isinstance(item, Column)
    }
    named |= {item.alias.lower(): item for item in items if item.alias}
    lower = frozenset(map(str.lower, names))
    for key in keys:
        if is_order_name(key.value, lower):
            assert isinstance(key.value, Column)
            if key.value.name.lower() not in named:
                return None
            item = as_key(unnamed(named[key.value.name.lower()]))
        elif (item := item_at(key.value, select)) is key.value:
            continue
        key.value = _key_of_rank(item) or item
        key.value.meta[NOT_A_NAME] = True
    return keys


def _ranks_first(item: Expression, keys: list[tree.Ordered], select: Select) -> bool:
    """Whether an item is the rank by which a SELECT takes its first rows."""
    key, limit = _key_of_rank(item), select.limit
    has_more = select.qualify is not None or select.distinct is not None
    if key is None or not keys or has_more or limit is None or limit.offset is not None:
        return False
    first = keys[0].value
    while isinstance(first, tree.Operator) and first.kind == build.TRY:
        first = first.operands[0]
    return keys[0].direction != build.DESCENDING and first.key == key.key


def _key_of_rank(item: Expression) -> Expression | None:
    """What orders rows as AI_RANK does; None for another expression."""
    if RANKS not in item.meta or not isinstance(item, Case):
        return None
    window = item.branches[0].value
    assert isinstance(window, tree.Window)
    return build.operator("-", build.number(1), window.orders[0].value.copy())


def enough_of(outer: Query, tables: Collection[str], functions: FunctionCatalog) -> int | None:
    """How many rows a statement returns at most, if it only gains rows as some tables grow; None if
    it needs all of theirs.

    outer: what is left of it. tables: of its SELECTs with calls.
    """
    limits = limits_of(outer)
    if limits is None or outer.distinct is not None or outer.order is not None:
        return None

    def grows_with(table: Node) -> bool:
        """Whether the statement does."""
        for node in (table, *table.ancestors()):
            if isinstance(node, Entry):
                readers = [table for table in outer.find_all(tree.Table) if entry_of(table) is node]
                return all(map(grows_with, readers))
            if node is outer or node.parent is None:
                return True
            has_more = isinstance(node.parent, Query) and bool(node.parent.modifiers)
            if (has_more and node.parent is not outer) or not _passes(node, node.parent, functions):
                return False
        return True

    read = [table for table in outer.find_all(tree.Table) if table.table in tables]
    return limits[0] if all(map(grows_with, read)) else None


def _passes(node: Node, parent: Node, functions: FunctionCatalog) -> bool:
    """Whether a part of a query gains rows, or becomes true, as another one in it does."""
    passes = type(parent) is Node or isinstance(parent, tree.Derived | Entry)
    if isinstance(parent, tree.Join):
        passes = parent.method in ("REGULAR", "CROSS", "NATURAL") and parent.kind != "FULL"
        if node is parent.condition:
            passes &= parent.kind in ("INNER", "SEMI")
        passes &= node.place != {"LEFT": "right", "ANTI": "right", "RIGHT": "left"}.get(parent.kind)
    elif isinstance(parent, Select):
        passes = node.place in ("from_table", "where_clause") and parent.qualify is None
        passes &= parent.sample is None and not functions.in_select(parent)
        passes &= not any(has_window(item) or makes_rows(item) for item in parent.items)
    elif isinstance(parent, tree.SetOperation):
        passes = parent.kind == "UNION" and parent.is_all
    elif isinstance(parent, tree.Conjunction):
        passes = parent.is_and
    elif isinstance(parent, tree.Subquery):
        passes = node.place == "subquery" and parent.kind in ("EXISTS", "ANY")
    elif isinstance(parent, tree.When) and isinstance(parent.parent, Case):
        # Of CASE WHEN EXISTS (...) THEN true ELSE false END
        whole = build.when(parent.condition.copy(), build.boolean(True), build.boolean(False))
        passes = parent.parent.key == whole.key
    elif isinstance(parent, Case):
        passes = isinstance(node, tree.When)
    return passes and not (isinstance(node, tree.Source) and node.sample is not None)
