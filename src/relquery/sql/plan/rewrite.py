"""Rewrites one SELECT so that it reads materialised rows and answers instead of its tables.

Every part that DuckDB must compute from the FROM clause (a column, a correlated subquery, an
argument of a call) becomes a column of the base table, copied there unchanged. So only DuckDB
resolves names, by its own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from sqlglot import exp

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.form.guards import guard_of
from relquery.sql.form.normalize import group_keys, is_order_name
from relquery.sql.host.database import Database
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.binding import is_variable, outer_columns
from relquery.sql.read.from_clause import Sources
from relquery.sql.read.scopes import (
    Context,
    bare_queries,
    compared_with_query,
    has_call,
    is_subquery,
)
from relquery.sql.read.source import call_number, readable, to_sql

# Notes on expressions that a base column would have to compute: the condition under which they are
# read, and whether they belong to a group rather than to its rows.
_GUARD = "guard"
_OF_GROUP = "of_group"


def note_wholes(select: exp.Select, aggregates: Aggregates) -> None:
    """Note when expressions that cannot be split are read: copies keep notes but lose parents."""
    grouped = aggregates.in_select(select)
    keys = {to_sql(key.unnest()) for key in group_keys(select)}
    for node in select.walk():
        if not (is_subquery(node) or compared_with_query(node) or _is_whole(node)):
            continue
        node.meta[_GUARD] = guard_of(node, select, aggregates)
        node.meta[_OF_GROUP] = grouped and not (
            aggregates.around(node, select)
            or node.find_ancestor(exp.Group, exp.Where) is not None
            or _is_in_key(node, select, keys)
        )


def _is_in_key(node: exp.Expr, select: exp.Select, keys: Collection[str]) -> bool:
    """Whether a node is a key of GROUP BY or a part of one. keys: their SQL."""
    if not keys:
        return False
    above: exp.Expr | None = node
    while above is not None and above is not select:
        if to_sql(above.unnest()) in keys:
            return True
        above = above.parent
    return False


@dataclass(slots=True)
class Rewriter:
    """Rewrites expressions of one SELECT.

    names: lower-case names of the result's columns, which ORDER BY may use.
    answer: gives the column that holds the answers to a call.
    base: the base table's columns by name, filled while rewriting.
    """

    database: Database
    context: Context
    sources: Sources
    names: frozenset[str]
    answer: Callable[[exp.Anonymous], exp.Expr]
    base: dict[str, exp.Expr] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)

    def rewrite(self, node: exp.Expr) -> exp.Expr:
        """A copy of an expression that reads the materialised rows."""
        return node.transform(self._rewrite_part)

    def rewrite_field(self, node: exp.Expr) -> exp.Expr:
        """Like `rewrite`, for an argument of a call: its subqueries run once, with the base."""
        return node.transform(self._rewrite_field_part)

    def _rewrite_field_part(self, node: exp.Expr) -> exp.Expr:
        is_query = is_subquery(node) or compared_with_query(node) is not None
        return self.lift(node) if is_query and not has_call(node) else self._rewrite_part(node)

    def lift(self, node: exp.Expr) -> exp.Column:
        """The base column for a whole expression without calls, computed only where it is read."""
        key, whole = to_sql(node), node.copy()
        if isinstance(node, exp.Column):
            key = "\0".join(self.sources.resolve(node) or (key,)).lower()
        elif (guard := node.meta_get(_GUARD)) is not None:
            whole = exp.Case(ifs=[exp.If(this=guard.copy(), true=whole)])
            key = to_sql(whole)
        name = self._keys.setdefault(key, ours.column(len(self._keys)))
        self.base.setdefault(name, whole)
        return exp.column(name)

    def _rewrite_part(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and call_number(node) is not None:
            return self.answer(node)
        if (compared := compared_with_query(node)) is not None:
            return self._rewrite_compared(node, *compared)
        if is_subquery(node):
            return node.copy() if self._stands_alone(node) else self._rewrite_dependent(node)
        if isinstance(node, exp.Column):
            stays = is_order_name(node, self.names) or is_variable(node)
            return node if stays else self.lift(node)
        return self.lift(node) if _is_whole(node) else node

    def _rewrite_compared(self, node: exp.Expr, side: str, query: exp.Expr) -> exp.Expr:
        compared = node.args[side]
        if self._stands_alone(query):
            copy = node.copy()
            copy.set(side, self.rewrite(compared))
            return copy
        if has_call(compared):
            raise UnsupportedQueryError(
                f"{readable(compared)[:80]} is compared with a subquery that depends on the row. "
                "Join the subquery's table instead."
            )
        return self._rewrite_dependent(node)

    def _rewrite_dependent(self, node: exp.Expr) -> exp.Expr:
        """A subquery that depends on a row of the outer query, or on its group."""
        if not node.meta_get(_OF_GROUP):
            return self.lift(node)
        copy = node.copy()
        columns = outer_columns(copy, self.database, self.context)
        if columns is None:
            return self.lift(node)
        for column in columns:
            column.replace(self.lift(column))
        return copy

    def _stands_alone(self, node: exp.Expr) -> bool:
        """Whether a subquery is independent of the outer query's rows. DuckDB decides."""
        query = node if isinstance(node, exp.Query) else bare_queries(node)[0]
        if isinstance(query, exp.Subquery) and not query.alias:
            query = query.this
        try:
            self.database.describe(self.context.sql(f"SELECT * FROM ({to_sql(query)})"))
        except QueryError:
            return False
        return True


def _is_whole(node: exp.Expr) -> bool:
    """Whether an expression is a schema's function, or a field or method that DuckDB resolves."""
    if not isinstance(node, exp.Dot):
        return False
    if isinstance(node.this, exp.Identifier):
        return not (is_variable(node) or has_call(node))
    return _is_whole(node.this) and not has_call(node)
