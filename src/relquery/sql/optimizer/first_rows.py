"""Calls in correlated subqueries are only about the rows that LIMIT leaves.

(SELECT LLM('...', b.t) FROM b WHERE b.k = a.k ORDER BY b.day LIMIT 1)
    of its rows for every row of a: DISTINCT ON (a.k) ... ORDER BY b.day
SELECT (SELECT max(LLM('...', b.t)) FROM b WHERE b.k = a.k) FROM a ORDER BY a.day LIMIT 3
    of the rows of a: QUALIFY rank() OVER (ORDER BY a.day) <= 3
SELECT x FROM a, LATERAL (SELECT LLM('...', b.t) AS x FROM b WHERE b.k = a.k) ORDER BY a.day LIMIT 3
    of its rows for every row of a: the same

Rows with equal keys are all kept where the outer query chooses among them once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import has_window, makes_rows
from relquery.sql.binder.normalize import name_of, unnamed
from relquery.sql.optimizer.owners import OWNER
from relquery.sql.optimizer.push_limits import limits_of
from relquery.sql.optimizer.reads import Lookup, is_inner
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, Expression, Join, Node, Ordered, Select

Put = Callable[[Expression], Any]
"""An expression in the place of another one."""


@dataclass(frozen=True, slots=True)
class FirstRows:
    """most: how many rows LIMIT leaves. keys: of ORDER BY, over the FROM clause, without calls."""

    most: int
    keys: tuple[Ordered, ...]

    @classmethod
    def of(cls, select: Select, lookup: Lookup) -> FirstRows | None:
        """Those of a SELECT whose rows are those of its FROM clause."""
        limits, functions = limits_of(select), lookup.functions
        if limits is None or any((select.distinct, select.qualify, select.sample)):
            return None
        if functions.in_select(select) or sees_several(select):
            return None
        keys = [] if select.order is None else [key.copy() for key in select.order.keys]
        for key in keys:
            names = {one.name.lower() for one in key.find_all(Column) if len(one.names) == 1}
            named = [item for item in select.items if name_of(item).lower() in names]
            if isinstance(key.value, Column) and len(named) == 1:
                key.value = unnamed(named[0])
            elif named:
                return None
            is_open = has_call(key) or functions.has_query(key) or functions.is_volatile(key)
            if is_open or has_window(key) or key.find(Column) is None:
                return None
        return cls(sum(limits), tuple(keys))

    def over(self, moved: Put) -> FirstRows | None:
        """The same over the rows of a subquery for all outer rows. moved: its expressions there.
        None if that needs answers, or a key is unclear."""
        columns = [one for key in self.keys for one in key.find_all(Column)]
        if any(has_call(key) for key in self.keys) or any(OWNER not in one.meta for one in columns):
            return None
        return self._with_keys(moved)

    def read_in(self, select: Select, outer: Select, lookup: Lookup) -> FirstRows | None:
        """The same over the columns of a LATERAL subquery and of an outer query whose rows are
        those of the two; else None."""
        item, join, sources = _item(select), outer.source, lookup.sources(outer)
        is_last = isinstance(join, Join) and join.right is item and _is_cross(join)
        if item is None or sources is None or not is_last or select.modifiers:
            return None
        values = dict(zip(sources.columns.get(item.name, ()), select.items, strict=False))

        def read(part: Node) -> Expression | None:
            found = sources.resolve(part) if isinstance(part, Column) else None
            if found is None or found[0] != item.name:
                part.meta |= {} if found is None else {OWNER: found}
                return None
            return unnamed(values[found[1]])

        has_more = select.qualify is not None or sees_several(select)
        is_plain = not (has_more or lookup.functions.in_select(select))
        return self._with_keys(lambda key: key.rebuilt(read)) if is_plain else None

    def leave(self, rows: Select, names: Iterable[str]) -> None:
        """Leave, in place, so many of the rows with equal values in some columns."""
        if self.most == 1:
            build.first_of(rows, names)
            order = tree.Order(orders=list(self.keys)) if self.keys else None
            build.set_modifier(rows, tree.Order, order)
        elif not has_call(rows.where):
            known = {item.alias: unnamed(item) for item in rows.items}
            rows.qualify = self._among("row_number", [known[name].copy() for name in names])

    def with_ties(self, rows: Select) -> Select:
        """The rows that may be among the first."""
        rows = rows.copy()
        if self.keys and not has_call(rows.where):
            rows.qualify = self._among("rank", ())
        return rows

    def _with_keys(self, put: Put) -> FirstRows:
        keys = tuple(key.copy() for key in self.keys)
        for key in keys:
            key.value = put(key.value)
        return FirstRows(self.most, keys)

    def _among(self, name: str, each: Iterable[Expression]) -> Expression:
        """`name() OVER (PARTITION BY each ORDER BY keys) <= most`."""
        window = parser().expression(f"{name}() OVER ()")
        assert isinstance(window, tree.Window)
        window.partitions, window.orders = list(each), list(self.keys)
        return build.compared("COMPARE_LESSTHANOREQUALTO", window, build.number(self.most))


def sees_several(select: Select) -> bool:
    """Whether an item of a SELECT reads several rows, or makes them."""
    return any(has_window(item) or makes_rows(item) for item in select.items)


def keeps_outer(select: Select, outer: Select, lookup: Lookup) -> bool:
    """Whether every row of an outer query gives a row, whatever its subquery gives."""
    item = _item(select)
    join = outer.source
    if item is None or not isinstance(join, Join) or join.right is not item:
        return item is None
    is_one = isinstance(select.source, tree.Empty) and select.where is None
    if select.qualify is not None or any(map(makes_rows, select.items)):
        return join.kind == "LEFT"
    if lookup.functions.in_select(select):
        is_one = not (select.keys or select.sets or select.having or select.is_grouped_by_all)
    return join.kind == "LEFT" or (_is_cross(join) and is_one and not select.modifiers)


def _item(select: Select) -> tree.Derived | None:
    """The LATERAL subquery that a SELECT is; None for one in an expression."""
    holder = select.ancestor(tree.Derived, tree.Subquery)
    return holder if isinstance(holder, tree.Derived) else None


def _is_cross(join: Join) -> bool:
    """Whether a join keeps all pairs."""
    is_true = join.condition is None or join.condition.key == build.boolean(True).key
    return is_inner(join) and is_true and not join.using and join.method != "NATURAL"
