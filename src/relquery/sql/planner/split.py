"""Splits a SELECT into a query that DuckDB computes beforehand and a SELECT over its rows.

Every part that DuckDB must compute from the FROM clause (a column, a correlated subquery, an
argument of a call) becomes a column of the base, copied there unchanged (`Lifter`). So only DuckDB
resolves names, by its own rules.

Calls about groups are made per group (`over_groups`):

SELECT k, LLM('...', k, sum(x)) FROM t GROUP BY k
=> SELECT key, LLM('...', key, total) FROM (SELECT k AS key, sum(x) AS total FROM t GROUP BY k)

So a call sees the final groups, whatever produces them (ROLLUP, HAVING, no GROUP BY at all).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, Call, calls_in, field_name, has_call, readable
from relquery.sql.binder.functions import FunctionCatalog, is_variable
from relquery.sql.binder.normalize import is_order_name, keys_of
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import Sources, canonical, describe, outer_columns
from relquery.sql.host.database import Database
from relquery.sql.optimizer.reads import Computed, note_field_names
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    Expression,
    Function,
    Node,
    Operator,
    Position,
    Query,
    Select,
    Subquery,
)
from relquery.sql.planner.guards import guard_of

# Notes on expressions that a base column would have to compute: the condition under which they are
# read, and whether they belong to a group rather than to its rows.
_GUARD = "guard"
_OF_GROUP = "of_group"


def note_wholes(select: Select, functions: FunctionCatalog) -> None:
    """Note when expressions that cannot be split are read: copies keep notes but lose parents."""
    grouped, keys = functions.in_select(select), {key.key for key in select.keys}
    for node in select.walk(prune=lambda part: isinstance(part, Query) and part is not select):
        if _is_whole(node):
            path = _path(node, select)
            node.meta[_GUARD] = guard_of(node, select, functions)
            node.meta[_OF_GROUP] = grouped and not (
                functions.around(node, select)
                or path[-1].place in ("group_expressions", "where_clause", "from_table")
                or any(one.key in keys for one in path)
            )


def _path(node: Node, select: Select) -> list[Node]:
    """A node and those around it, up to a clause of a SELECT."""
    path = [node, *node.ancestors()]
    return path[: next(at for at, one in enumerate(path) if one is select)]


def _is_whole(node: Node) -> bool:
    """Whether an expression is a subquery, a schema's function, or a method or a column by its
    place, which DuckDB resolves."""
    if isinstance(node, Function):
        return bool(node.schema) and not has_call(node)
    return isinstance(node, Subquery | Position)


@dataclass(slots=True)
class Lifter:
    """Rewrites expressions of one SELECT so that they read materialised rows and answers.

    names: lower-case names of the result's columns, which ORDER BY may use.
    answer: gives the column that holds the answers to a call.
    base: the base's columns, filled while rewriting.
    """

    database: Database
    context: Context
    sources: Sources
    names: Collection[str]
    answer: Callable[[Call], Expression]
    base: Computed = field(default_factory=lambda: Computed(ours.column))

    def rewrite(self, node: Node) -> Any:
        """A copy of an expression that reads the materialised rows."""
        return node.rebuilt(self._part)

    def rewrite_field(self, node: Expression) -> Expression:
        """Like `rewrite`, for an argument of a call: its subqueries run once, with the base."""

        def part(one: Node) -> Expression | None:
            is_plain = isinstance(one, Subquery) and not has_call(one)
            return self._lift(one) if is_plain and isinstance(one, Subquery) else self._part(one)

        found = node.rebuilt(part)
        assert isinstance(found, Expression)
        return found

    def _lift(self, node: Expression) -> Column:
        """The base column for a whole expression without calls, computed only where it is read."""
        whole = node.copy().named("")
        key = whole.key
        if isinstance(node, Column):
            key = "\0".join(self.sources.resolve(node) or (key,)).lower()
        elif (guard := node.meta.get(_GUARD)) is not None:
            whole = build.when(guard.copy(), whole)
            key = whole.key
        column = self.base.column(whole, key).named(node.alias)
        column.meta.update(node.meta)
        return column

    def _part(self, node: Node) -> Expression | None:
        if isinstance(node, Call):
            return self.answer(node).named(node.alias)
        if isinstance(node, Subquery):
            return self._subquery(node)
        is_name = isinstance(node, Column) and not is_variable(node)
        is_lifted = is_name and not is_order_name(node, self.names)
        is_lifted |= _is_whole(node)
        return self._lift(node) if is_lifted and isinstance(node, Expression) else None

    def _subquery(self, node: Subquery) -> Expression:
        """A subquery. What ANY compares is rewritten by itself."""
        copy = node.copy()
        if not self._stands_alone(node.query):
            if has_call(node.compared):
                assert node.compared is not None
                raise UnsupportedQueryError(
                    f"{readable(node.compared)[:80]} is compared with a subquery that depends on "
                    "the row. Join the subquery's table instead."
                )
            is_of_group = bool(node.meta.get(_OF_GROUP))
            outer = outer_columns(copy.query, self.database, self.context) if is_of_group else None
            if outer is None:
                return self._lift(node)
            for column in outer:
                column.replace(self._lift(column))
        if node.compared is not None:
            copy.compared = self.rewrite(node.compared)
        return copy

    def _stands_alone(self, query: Query) -> bool:
        """Whether a subquery is independent of the outer query's rows. DuckDB decides."""
        try:
            return bool(describe(self.context.around(query), self.database))
        except QueryError:
            return False


def asks_about_groups(select: Select, sources: Sources, functions: FunctionCatalog) -> bool:
    """Whether a call in a normalized SELECT is about a group and not about its rows."""
    if not functions.in_select(select):
        return False
    keys = {canonical(key, sources) for key in keys_of(select, functions)}
    for call in calls_in(select):
        path = _path(call, select)
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
    split = _Groups(sources, functions, frozenset(map(str.lower, names)))
    keys = keys_of(select, functions)
    for key in keys:
        split.column(key)
    pairs = zip(select.items, names, strict=True)
    outer = build.select([split.outside(item).named(name) for item, name in pairs])
    having = build.conjuncts(select.having)
    about_groups = [split.outside(part) for part in having if has_call(part)]
    if about_groups:
        outer.where = build.all_of(about_groups)
    if select.qualify is not None:
        outer.qualify = split.outside(select.qualify)
    outer.set("modifiers", [split.outside(one) for one in select.modifiers] or None)
    inner = select.copy()
    inner.entries = ()
    for clause in ("modifiers", "qualify", "having"):
        inner.set(clause, None)
    if select.is_grouped_by_all:
        inner.set("aggregate_handling", "STANDARD_HANDLING")
        inner.set("group_expressions", [key.copy() for key in keys] or None)
        inner.set("group_sets", [list(range(len(keys)))] if keys else None)
    inner.items = split.inner.items() or [build.function("count_star").named(ours.GROUP)]
    plain = [part.copy() for part in having if not has_call(part)]
    if plain:
        inner.having = build.all_of(plain)
    outer.source = build.derived(inner, ours.GROUPS)
    return outer


@dataclass(slots=True)
class _Groups:
    """Splits expressions into what the subquery with the groups computes and what stays outside."""

    sources: Sources
    functions: FunctionCatalog
    names: frozenset[str]
    inner: Computed = field(default_factory=lambda: Computed(ours.group))

    def outside(self, node: Node) -> Any:
        """A copy of an expression that reads the subquery's columns."""
        node = node.copy()
        note_field_names(node)
        return node.rebuilt(self._part)

    def column(self, node: Expression) -> Column:
        """The outer column for an expression that the subquery computes."""
        column = self.inner.column(node.copy(), canonical(node, self.sources))
        column.meta[FIELD_NAME] = node.meta.get(FIELD_NAME, field_name(node))
        return column.named(node.alias)

    def _part(self, node: Node) -> Expression | None:
        if not isinstance(node, Expression) or is_order_name(node, self.names):
            return None
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
        found = build.operation("STRUCT_EXTRACT", self.column(key), build.text(node.name))
        found.meta[FIELD_NAME] = node.meta.get(FIELD_NAME, node.name)
        return found
