"""Takes what DuckDB computes out of a SELECT, so that Spark can run the rest.

That is all that a row has by itself: so an expression has one meaning on every machine.

SELECT a, count(*) FILTER (WHERE TRY_CAST(answer AS INT) > 3) FROM rows GROUP BY a
=> the column `TRY_CAST(answer AS INT) > 3` for each row, by DuckDB in the tasks; the rest by Spark
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.functions import FunctionCatalog, is_lambda, is_variable
from relquery.sql.binder.normalize import keys_of, unnamed
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, Expression, Node, Query, Select, Window

_NAME = f"{ours.PREFIX}hoisted_"


@dataclass(slots=True)
class Hoisted:
    """columns: what DuckDB computes for each row, by name; filled by `select`."""

    functions: FunctionCatalog
    columns: dict[str, Expression] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def select(self, select: Select) -> Select:
        """A copy of a SELECT over ours.ROWS that reads those columns."""
        found = select.copy()
        keys = [key for key in keys_of(found, self.functions) if _is_computed(key)]
        names = {key.key: self._column(key).name for key in keys}
        for node in list(found.walk()) if names else []:
            if isinstance(node, Expression) and node.key in names:
                node.replace(build.column(names[node.key]).named(node.alias))
        is_grouped = self.functions.in_select(found)
        for child in list(found.children()):
            self._lower(child, is_row=not is_grouped)
        return found

    def _lower(self, node: Node, is_row: bool) -> None:
        """Take out of a tree what rows have by themselves. is_row: whether it is read by row."""
        if isinstance(node, Query) or not _is_computed(node):
            return
        if is_row and isinstance(node, Expression) and self._is_row(node):
            node.replace(self._column(node).named(node.alias))
            return
        is_row = is_row or self.functions.is_aggregate(node)
        for child in list(node.children()):
            self._lower(child, is_row)

    def _is_row(self, node: Expression) -> bool:
        """Whether each row has a value of its own, which its columns decide."""
        alone = node.copy()  # outside of the lambdas around it
        return not is_lambda(node) and all(
            is_variable(part) or part.name.startswith(ours.PREFIX)  # ORDER BY may name an item
            if isinstance(part, Column)
            else not (isinstance(part, Query | Window) or self.functions.is_aggregate(part))
            for part in alone.walk()
        )

    def _column(self, node: Expression) -> Column:
        name = self._names.setdefault(node.key, f"{_NAME}{len(self._names)}")
        self.columns.setdefault(name, unnamed(node))
        return build.column(name)


def _is_computed(node: Node) -> bool:
    """Whether a node computes something from columns."""
    return not isinstance(node, Column) and node.find(Column) is not None


def check_alone(node: Node) -> None:
    """Raises UnsupportedQueryError if an expression over answers contains a subquery."""
    query = node.find(Query)
    if query is not None:
        raise UnsupportedQueryError(
            f"An answer is read beside a subquery ({parser().sql(query)[:80]}), which Spark cannot "
            "compute for each row. Join the subquery in FROM instead."
        )
