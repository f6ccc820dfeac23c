"""Which functions aggregate: DuckDB's own list, as sqlglot knows only some of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from relquery.sql.database import Database


@dataclass(frozen=True, slots=True)
class Aggregates:
    """names: lower-case names of all aggregate functions."""

    names: frozenset[str]

    @classmethod
    def of(cls, database: Database) -> Aggregates:
        """Read the list from the database."""
        sql = "SELECT DISTINCT function_name FROM duckdb_functions() "
        rows = database.fetch(sql + "WHERE function_type = 'aggregate'").column(0).to_pylist()
        return cls(frozenset(name.lower() for name in rows))

    def is_aggregate(self, node: exp.Expr) -> bool:
        """Whether a node is a call that folds rows into one value, and no window function."""
        return self._folds(node) and not _in_window(node)

    def around(self, node: exp.Expr, top: exp.Expr) -> bool:
        """Whether an aggregate stands between a node and `top`."""
        parent = node.parent
        while parent is not None and parent is not top:
            if self.is_aggregate(parent):
                return True
            parent = parent.parent
        return False

    def inside(self, node: exp.Expr) -> Iterator[exp.Expr]:
        """The aggregates in an expression, those of subqueries aside."""
        for found in node.walk(prune=lambda part: isinstance(part, exp.Query)):
            if self.is_aggregate(found):
                yield found

    def in_select(self, select: exp.Select) -> bool:
        """Whether a SELECT gives groups and no rows."""
        if select.args.get("group") or select.args.get("having"):
            return True
        clauses = [*select.expressions, select.args.get("qualify"), select.args.get("order")]
        return any(next(self.inside(node), None) is not None for node in clauses if node)

    def _folds(self, node: exp.Expr) -> bool:
        if isinstance(node, exp.AggFunc):
            return True
        if isinstance(node, exp.Anonymous):
            return str(node.this).lower() in self.names
        return isinstance(node, exp.Func) and any(
            name.lower() in self.names for name in type(node).sql_names()
        )


def _in_window(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        parent = parent.parent
    return isinstance(parent, exp.Window)
