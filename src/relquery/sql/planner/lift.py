"""Rewrites one SELECT so that it reads materialised rows and answers instead of its tables.

Every part that DuckDB must compute from the FROM clause (a column, a correlated subquery, an
argument of a call) becomes a column of the base table, copied there unchanged. So only DuckDB
resolves names, by its own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import Call, has_call, readable
from relquery.sql.binder.functions import FunctionCatalog, is_variable
from relquery.sql.binder.normalize import is_order_name
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.sources import Sources, describe, outer_columns
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    Expression,
    Function,
    Node,
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
    wholes = [
        node
        for node in select.walk(prune=lambda part: isinstance(part, Query) and part is not select)
        if _is_whole(node)
    ]
    if not wholes:
        return
    grouped = functions.in_select(select)
    keys = {key.key for key in select.keys}
    for node in wholes:
        path = [node, *node.ancestors()]
        path = path[: next(at for at, one in enumerate(path) if one is select)]
        clause = path[-1].place
        node.meta[_GUARD] = guard_of(node, select, functions)
        node.meta[_OF_GROUP] = grouped and not (
            functions.around(node, select)
            or clause in ("group_expressions", "where_clause", "from_table")
            or any(one.key in keys for one in path)
        )


@dataclass(slots=True)
class Lifter:
    """Rewrites expressions of one SELECT.

    names: lower-case names of the result's columns, which ORDER BY may use.
    answer: gives the column that holds the answers to a call.
    base: the base table's columns by name, filled while rewriting.
    """

    database: Database
    context: Context
    sources: Sources
    names: Collection[str]
    answer: Callable[[Call], Expression]
    base: dict[str, Expression] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    _alone: dict[str, bool] = field(default_factory=dict)

    def rewrite(self, node: Node) -> Any:
        """A copy of an expression that reads the materialised rows."""
        return node.rebuilt(self._part)

    def rewrite_field(self, node: Expression) -> Expression:
        """Like `rewrite`, for an argument of a call: its subqueries run once, with the base."""

        def part(one: Node) -> Expression | None:
            is_plain = isinstance(one, Subquery) and not has_call(one)
            return self.lift(one) if is_plain and isinstance(one, Subquery) else self._part(one)

        found = node.rebuilt(part)
        assert isinstance(found, Expression)
        return found

    def lift(self, node: Expression) -> Column:
        """The base column for a whole expression without calls, computed only where it is read."""
        whole = node.copy()
        whole.alias = ""
        key = whole.key
        if isinstance(node, Column):
            key = "\0".join(self.sources.resolve(node) or (key,)).lower()
        elif (guard := node.meta.get(_GUARD)) is not None:
            whole = build.when(guard.copy(), whole)
            key = whole.key
        name = self._keys.setdefault(key, ours.column(len(self._keys)))
        self.base.setdefault(name, whole)
        column = build.column(name).named(node.alias)
        column.meta.update(node.meta)
        return column

    def _part(self, node: Node) -> Expression | None:
        if isinstance(node, Call):
            return self.answer(node).named(node.alias)
        if isinstance(node, Subquery):
            return self._subquery(node)
        if isinstance(node, Column):
            stays = is_order_name(node, self.names) or is_variable(node)
            return None if stays else self.lift(node)
        is_whole = _is_whole(node) and isinstance(node, Expression)
        return self.lift(node) if is_whole and isinstance(node, Expression) else None

    def _subquery(self, node: Subquery) -> Expression:
        """A subquery. What ANY compares is rewritten by itself."""
        if self._stands_alone(node.query):
            copy = node.copy()
            if node.compared is not None:
                copy.compared = self.rewrite(node.compared)
            return copy
        if has_call(node.compared):
            assert node.compared is not None
            raise UnsupportedQueryError(
                f"{readable(node.compared)[:80]} is compared with a subquery that depends on the "
                "row. Join the subquery's table instead."
            )
        if not node.meta.get(_OF_GROUP):
            return self.lift(node)
        copy = node.copy()
        columns = outer_columns(copy.query, self.database, self.context)
        if columns is None:
            return self.lift(node)
        if copy.compared is not None:
            copy.compared = self.rewrite(copy.compared)
        for column in columns:
            column.replace(self.lift(column))
        return copy

    def _stands_alone(self, query: Query) -> bool:
        """Whether a subquery is independent of the outer query's rows. DuckDB decides."""
        key = query.key
        if key not in self._alone:
            try:
                describe(self.context.around(query), self.database)
                self._alone[key] = True
            except QueryError:
                self._alone[key] = False
        return self._alone[key]


def _is_whole(node: Node) -> bool:
    """Whether an expression is a subquery, a schema's function, or a method or a column by its
    place, which DuckDB resolves."""
    if isinstance(node, Function):
        return bool(node.schema) and not has_call(node)
    return isinstance(node, Subquery | Position)
