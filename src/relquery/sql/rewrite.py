"""Rewriting one SELECT so that it reads materialised rows and answers instead of its tables.

Every part that DuckDB must compute from the FROM clause (a column, a correlated subquery, an
argument of a call) becomes a column of the base table, written there as it stood. So names are
resolved by DuckDB alone and by its rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql.database import Database
from relquery.sql.normalize import is_order_name
from relquery.sql.scopes import Context, has_call
from relquery.sql.source import call_number, readable, to_sql
from relquery.sql.sources import Sources

ROW = "_rq_row"


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

    def lift(self, node: exp.Expr) -> exp.Column:
        """The base column that holds a whole expression without calls."""
        key = to_sql(node)
        if isinstance(node, exp.Column):
            key = "\0".join(self.sources.resolve(node) or (key,)).lower()
        name = self._keys.setdefault(key, f"_rq_column_{len(self._keys)}")
        self.base.setdefault(name, node.copy())
        return exp.column(name)

    def _rewrite_part(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and call_number(node) is not None:
            return self.answer(node)
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._rewrite_in(node)
        if _is_subquery(node):
            return node.copy() if self._stands_alone(node) else self.lift(node)
        if isinstance(node, exp.Column) and not is_order_name(node, self.names):
            return self.lift(node)
        return self.lift(node) if _is_whole(node) and not has_call(node) else node

    def _rewrite_in(self, node: exp.In) -> exp.Expr:
        query = node.args["query"]
        if self._stands_alone(query):
            copy = node.copy()
            copy.set("this", self.rewrite(node.this))
            return copy
        if has_call(node.this):
            raise UnsupportedQueryError(
                f"{readable(node)} asks a subquery that depends on the row and an LLM call at "
                "once. Join the subquery's table instead."
            )
        return self.lift(node)

    def _stands_alone(self, node: exp.Expr) -> bool:
        """Whether a subquery does not depend on the row around it. DuckDB decides."""
        query = node if isinstance(node, exp.Query) else _bare_queries(node)[0]
        if isinstance(query, exp.Subquery) and not query.alias:
            query = query.this
        try:
            self.database.describe(self.context.sql(f"SELECT * FROM ({to_sql(query)})"))
        except QueryError:
            return False
        return True


def _is_subquery(node: exp.Expr) -> bool:
    """A query in parentheses, or what holds a query in its own, as EXISTS (...) does."""
    return isinstance(node, exp.Query) or bool(_bare_queries(node))


def _bare_queries(node: exp.Expr) -> list[exp.Expr]:
    return [
        child
        for child in node.iter_expressions()
        if isinstance(child, exp.Query) and not isinstance(child, exp.Subquery)
    ]


def _is_whole(node: exp.Expr) -> bool:
    """Whether an expression is too subtle to take apart.

    It gives names of its own, as a lambda does, or calls a method: in `title.upper()` the column
    is a mere identifier.
    """
    if isinstance(node, exp.Dot):
        return isinstance(node.this, exp.Identifier) or _is_whole(node.this)
    return any(
        isinstance(child, exp.Lambda | exp.Comprehension) for child in node.iter_expressions()
    )
