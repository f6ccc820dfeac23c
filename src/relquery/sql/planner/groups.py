"""Calls about groups: `SELECT k, LLM('...', k, sum(x)) FROM t GROUP BY k` makes a call per group.

SELECT k, LLM('...', k, sum(x)) FROM t GROUP BY k
=> SELECT key, LLM('...', key, total) FROM (SELECT k AS key, sum(x) AS total FROM t GROUP BY k)

So a call sees the final groups, whatever produces them (ROLLUP, HAVING, no GROUP BY at all).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, calls_in, field_name, has_call
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.normalize import is_order_name, keys_of
from relquery.sql.binder.sources import Sources, canonical
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    Expression,
    Node,
    Operator,
    Select,
    Subquery,
)


def asks_about_groups(select: Select, sources: Sources, functions: FunctionCatalog) -> bool:
    """Whether a call in a normalized SELECT is about a group and not about its rows."""
    if not functions.in_select(select):
        return False
    keys = {canonical(key, sources) for key in keys_of(select, functions)}
    for call in calls_in(select):
        path = [call, *call.ancestors()]
        path = path[: next(at for at, node in enumerate(path) if node is select)]
        if functions.around(call, select) or path[-1].place in (
            "where_clause",
            "group_expressions",
        ):
            continue
        parts = [node for node in path if isinstance(node, Expression)]
        if not any(canonical(node, sources) in keys for node in parts):
            return True
    return False


def over_groups(
    select: Select, names: list[str], sources: Sources, functions: FunctionCatalog
) -> Select:
    """A SELECT without aggregates over a subquery with all of them; its columns are `names`."""
    split = _Split(sources, functions, frozenset(map(str.lower, names)))
    for key in keys_of(select, functions):
        split.column(key)
    having = build.conjuncts(select.having)
    outer = Select(
        select_list=[
            split.outside(item).named(name) for item, name in zip(select.items, names, strict=True)
        ]
    )
    about_groups = [split.outside(part) for part in having if has_call(part)]
    if about_groups:
        outer.where = build.all_of(about_groups)
    if select.qualify is not None:
        outer.qualify = split.outside(select.qualify)
    modifiers = [split.outside(modifier) for modifier in select.modifiers]
    outer.set("modifiers", modifiers or None)
    outer.entries = [entry.copy() for entry in select.entries]
    inner = select.copy()
    inner.entries = ()
    for clause in ("modifiers", "qualify", "having"):
        inner.set(clause, None)
    columns = [node.named(name) for name, node in split.inner.items()]
    if select.is_grouped_by_all:
        keys = keys_of(select, functions)
        inner.set("aggregate_handling", "STANDARD_HANDLING")
        inner.set("group_expressions", [key.copy() for key in keys] or None)
        inner.set("group_sets", [list(range(len(keys)))] if keys else None)
    inner.items = columns or [build.function("count_star").named(ours.GROUP)]
    plain = [part.copy() for part in having if not has_call(part)]
    if plain:
        inner.having = build.all_of(plain)
    outer.source = build.derived(inner, ours.GROUPS)
    return outer


@dataclass(slots=True)
class _Split:
    """Splits expressions into what the subquery computes and what stays outside.

    inner: columns of the subquery by name.
    """

    sources: Sources
    functions: FunctionCatalog
    names: frozenset[str]
    inner: dict[str, Expression] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)

    def outside(self, node: Node) -> Any:
        """A copy of an expression that reads the subquery's columns."""
        node = node.copy()
        for call in calls_in(node):
            for argument in call.fields:
                if not isinstance(argument, Column):
                    argument.meta.setdefault(FIELD_NAME, field_name(argument))
        return node.rebuilt(self._part)

    def column(self, node: Expression) -> Column:
        """The outer column for an expression that the subquery computes."""
        key = canonical(node, self.sources)
        name = self._known.setdefault(key, ours.group(len(self._known)))
        self.inner.setdefault(name, node.copy())
        column = build.column(name)
        column.meta[FIELD_NAME] = node.meta.get(FIELD_NAME, field_name(node))
        return column.named(node.alias)

    def _part(self, node: Node) -> Expression | None:
        if not isinstance(node, Expression) or is_order_name(node, self.names):
            return None
        if self._is_key(node) or self._folds(node):
            return self.column(node)
        if isinstance(node, Subquery):
            if node.compared is None or not has_call(node):
                return self.column(node)  # the group columns it reads exist in the subquery
            whole = node.copy()  # its query stays unchanged
            whole.compared = self.outside(node.compared)
            return whole
        if isinstance(node, Column) and len(node.names) > 1:
            return self._field_of_key(node)
        return None

    def _is_key(self, node: Expression) -> bool:
        return canonical(node, self.sources) in self._known

    def _field_of_key(self, node: Column) -> Expression | None:
        """`info.year` where `info` is a key."""
        key = build.column(node.names[0])
        if len(node.names) > 2 or self.sources.resolve(node) or not self._is_key(key):
            return None
        found = build.operation("STRUCT_EXTRACT", self.column(key), build.text(node.name))
        found.meta[FIELD_NAME] = node.meta.get(FIELD_NAME, node.name)
        return found

    def _folds(self, node: Expression) -> bool:
        """Whether a node is an aggregate, or a function of the keys that only the subquery can
        compute."""
        of_keys = isinstance(node, Operator) and node.kind == "GROUPING_FUNCTION"
        return of_keys or self.functions.is_aggregate(node)
