"""Takes what DuckDB computes out of a SELECT, so that Spark can run the rest.

That is all that a row has by itself: so an expression has one meaning on every machine.

SELECT a, count(*) FILTER (WHERE TRY_CAST(answer AS INT) > 3) FROM rows GROUP BY a
=> the column `TRY_CAST(answer AS INT) > 3` for each row, by DuckDB in the tasks; the rest by Spark
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.form.normalize import group_keys
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.source import to_sql

_NAME = f"{ours.PREFIX}hoisted_"
_PLACES = (exp.Alias, exp.Ordered, exp.Tuple, exp.Paren)


@dataclass(slots=True)
class Hoisted:
    """columns: what DuckDB computes for each row, by name; filled by `select`."""

    aggregates: Aggregates
    columns: dict[str, exp.Expr] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)

    def select(self, select: exp.Select) -> exp.Select:
        """A copy of a SELECT over ours.ROWS that reads those columns."""
        found = select.copy()
        keys = [key for key in group_keys(found) if _is_computed(key)]
        names = {to_sql(key.unnest()): self._column(key.unnest()) for key in keys}
        if names:
            for node in list(found.walk()):
                if to_sql(node) in names and node.parent is not None:
                    node.replace(names[to_sql(node)].copy())
        is_grouped = self.aggregates.in_select(found)
        for child in list(found.iter_expressions()):
            self._lower(child, is_row=not is_grouped)
        return found

    def _lower(self, node: exp.Expr, is_row: bool) -> None:
        """Take out of a tree what rows have by themselves. is_row: whether it is read by row."""
        if not _is_computed(node):
            return
        folded = node
        while isinstance(folded, exp.Filter | exp.WithinGroup):
            folded = folded.this
        is_row = is_row or self.aggregates.is_aggregate(folded) or isinstance(node, exp.Group)
        is_value = isinstance(node, exp.Condition | exp.Cast | exp.TryCast | exp.Try)
        is_place = isinstance(node, _PLACES) or self._folds(node)
        if is_row and is_value and not is_place and self._is_row(node):
            node.replace(self._column(node))
            return
        for child in list(node.iter_expressions()):
            self._lower(child, is_row)

    def _is_row(self, node: exp.Expr) -> bool:
        """Whether each row has a value of its own, which its columns decide."""
        columns = (column.name.lower() for column in node.find_all(exp.Column))
        if not all(name.startswith(ours.PREFIX) for name in columns):
            return False  # ORDER BY may name a column of the result
        return not any(isinstance(part, exp.Query) or self._folds(part) for part in node.walk())

    def _folds(self, node: exp.Expr) -> bool:
        named = isinstance(node, exp.Anonymous) and str(node.this).lower() in self.aggregates.names
        return isinstance(node, exp.AggFunc | exp.Window | exp.Filter | exp.WithinGroup) or named

    def _column(self, node: exp.Expr) -> exp.Column:
        text = to_sql(node)
        if text not in self._known:
            name = self._known[text] = f"{_NAME}{len(self._known)}"
            self.columns[name] = node.copy()
        return exp.column(self._known[text])


def _is_computed(node: exp.Expr) -> bool:
    """Whether a node computes something from columns."""
    return not isinstance(node.unnest(), exp.Column) and node.find(exp.Column) is not None


def check_alone(node: exp.Expr) -> None:
    """Raises UnsupportedQueryError if an expression over answers contains a subquery."""
    query = node.find(exp.Query)
    if query is not None:
        raise UnsupportedQueryError(
            f"An answer is read beside a subquery ({to_sql(query)[:80]}), which Spark cannot "
            "compute for each row. Join the subquery in FROM instead."
        )
