"""Calls about groups: `SELECT k, LLM('...', k, sum(x)) FROM t GROUP BY k` makes a call per group.

SELECT k, LLM('...', k, sum(x)) FROM t GROUP BY k
=> SELECT key, LLM('...', key, total) FROM (SELECT k AS key, sum(x) AS total FROM t GROUP BY k)

So a call sees the final groups, whatever produces them (ROLLUP, HAVING, no GROUP BY at all). Calls
about windows, and about rows that a function makes, likewise:

SELECT LLM('...', lag(x) OVER (ORDER BY y), unnest(l)) FROM t WHERE z
=> SELECT LLM('...', last, one)
   FROM (SELECT lag(x) OVER (ORDER BY y) AS last, unnest(l) AS one FROM t WHERE z)

And where windows see rows that QUALIFY or LIMIT drops, so that no call is about these:

SELECT rank() OVER (ORDER BY x), LLM('...', t) FROM t LIMIT 3
=> SELECT rank, LLM('...', t) FROM (SELECT rank() OVER (ORDER BY x) AS rank, t FROM t) LIMIT 3
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, calls_in, field_name, has_call
from relquery.sql.binder.functions import (
    FunctionCatalog,
    clauses_of,
    has_window,
    is_row_maker,
    is_variable,
    makes_rows,
    path_in,
)
from relquery.sql.binder.normalize import is_order_name, keys_of
from relquery.sql.binder.sources import Sources, canonical
from relquery.sql.optimizer.reads import Computed, condition_of, note_field_names, parted
from relquery.sql.parser import build
from relquery.sql.parser.tree import Column, Expression, Node, Operator, Select, Subquery, Window


def asks_about_groups(select: Select, sources: Sources, functions: FunctionCatalog) -> bool:
    """Whether a call in a normalized SELECT is about a group and not about its rows."""
    if not functions.in_select(select):
        return False
    keys = {canonical(key, sources) for key in keys_of(select, functions)}
    for call in [call for clause in clauses_of(select) for call in calls_in(clause)]:
        path = path_in(select, call)
        if path[-1].place in ("where_clause", "group_expressions"):
            continue
        parts = [node for node in path if isinstance(node, Expression)]
        is_of_key = any(canonical(node, sources) in keys for node in parts)
        if not is_of_key and not functions.around(call, select):
            return True
    return False


def over_groups(
    select: Select, names: list[str], sources: Sources, functions: FunctionCatalog
) -> Select:
    """A SELECT without aggregates over a subquery with all of them; its columns are `names`."""
    split = _Groups(frozenset(map(str.lower, names)), sources, functions=functions)
    keys = keys_of(select, functions)
    for key in keys:
        split.column(key)
    pairs = zip(select.items, names, strict=True)
    outer = build.select([split.outside(item).named(name) for item, name in pairs])
    plain, asking = parted(build.conjuncts(select.having))
    outer.where = condition_of([split.outside(part) for part in asking])
    if select.qualify is not None:
        outer.qualify = split.outside(select.qualify)
    outer.set("modifiers", [split.outside(modifier) for modifier in select.modifiers] or None)
    inner = _without_modifiers(select)
    if select.is_grouped_by_all:
        inner.set("aggregate_handling", "STANDARD_HANDLING")
        inner.set("group_expressions", [key.copy() for key in keys] or None)
        inner.set("group_sets", [list(range(len(keys)))] if keys else None)
    inner.items = split.inner.items() or [build.function("count_star").named(ours.GROUP)]
    inner.having = condition_of(part.copy() for part in plain)
    outer.source = build.derived(inner, ours.GROUPS)
    return outer


def asks_about_windows(select: Select) -> bool:
    """Whether a field of a call in a normalized SELECT has a window function, or makes rows."""
    listed = [*select.items, select.qualify, *select.modifiers]
    calls = (call for clause in listed if clause is not None for call in calls_in(clause))
    fields = (field for call in calls for field in call.fields)
    return any(has_window(field) or makes_rows(field) for field in fields)


def asks_beside_windows(select: Select, functions: FunctionCatalog) -> bool:
    """Whether a normalized SELECT returns fewer rows than its windows see, and asks about a row."""
    distinct = select.distinct
    is_cut = select.limit or select.qualify or (distinct is not None and distinct.on)
    own = [item for item in select.items if has_window(item) or makes_rows(item)]
    cuts = [clause for clause in (*own, select.qualify, *select.modifiers) if clause is not None]
    return bool(is_cut and own) and not (functions.in_select(select) or any(map(has_call, cuts)))


def over_windows(select: Select, names: list[str], sources: Sources) -> Select:
    """A SELECT over a subquery with all of these functions, and with the columns that it reads; its
    columns are `names`."""
    split = _Windows(frozenset(map(str.lower, names)), sources)
    pairs = zip(select.items, names, strict=True)
    outer = build.select([split.outside(item).named(name) for item, name in pairs])
    outer.set("modifiers", [split.outside(modifier) for modifier in select.modifiers] or None)
    if select.qualify is not None:
        outer.where = split.outside(select.qualify)
    inner = _without_modifiers(select)
    inner.items = split.inner.items()
    outer.source = build.derived(inner, ours.GROUPS)
    return outer


def _without_modifiers(select: Select) -> Select:
    """A copy with neither WITH nor what happens after its rows, or groups, are there."""
    inner = select.copy()
    inner.entries = ()
    inner.set("modifiers", None)
    inner.qualify = None
    return inner


@dataclass(slots=True)
class _Split(ABC):
    """A split of expressions into what the subquery computes and what stays outside."""

    names: frozenset[str]
    sources: Sources
    inner: Computed = field(default_factory=lambda: Computed(ours.group))

    def outside(self, node: Node) -> Any:
        """A copy of an expression that reads the subquery's columns."""
        node = node.copy()
        note_field_names(node)
        return node.rebuilt(self._put)

    def column(self, node: Expression) -> Column:
        """The outer column for an expression that the subquery computes."""
        column = self.inner.column(node.copy(), canonical(node, self.sources))
        column.meta[FIELD_NAME] = node.meta.get(FIELD_NAME, field_name(node))
        return column.named(node.alias)

    def _put(self, node: Node) -> Expression | None:
        if not isinstance(node, Expression) or is_order_name(node, self.names):
            return None
        return self._part(node)

    @abstractmethod
    def _part(self, node: Expression) -> Expression | None:
        """What an expression becomes outside; None where only parts of it change."""


@dataclass(slots=True)
class _Windows(_Split):
    """The subquery has windows and what makes rows, and the columns that are read outside."""

    def _part(self, node: Expression) -> Expression | None:
        is_column = isinstance(node, Column) and not is_variable(node)
        is_subquery = isinstance(node, Subquery) and not has_call(node)
        if not (is_column or is_subquery or isinstance(node, Window) or is_row_maker(node)):
            return None
        return self.column(node)


@dataclass(slots=True, kw_only=True)
class _Groups(_Split):
    """The subquery has keys and aggregates."""

    functions: FunctionCatalog

    def _part(self, node: Expression) -> Expression | None:
        is_of_keys = isinstance(node, Operator) and node.kind == "GROUPING_FUNCTION"
        if self._is_key(node) or is_of_keys or self.functions.is_aggregate(node):
            return self.column(node)
        if isinstance(node, Subquery):
            if node.compared is None or not has_call(node):
                return self.column(node)  # the group columns it reads exist in the subquery
            whole = node.copy()  # its query stays unchanged
            whole.compared = self.outside(node.compared)
            return whole
        if isinstance(node, Column) and len(node.names) == 2:
            return self._field_of_key(node)
        return None

    def _is_key(self, node: Expression) -> bool:
        return canonical(node, self.sources) in self.inner.values

    def _field_of_key(self, node: Column) -> Expression | None:
        """`info.year` where `info` is a key."""
        key = build.column(node.names[0])
        if self.sources.resolve(node) or not self._is_key(key):
            return None
        field = build.operation("STRUCT_EXTRACT", self.column(key), build.text(node.name))
        field.meta[FIELD_NAME] = node.meta.get(FIELD_NAME, node.name)
        return field
