"""Finds when a statement needs only the first rows that its SELECTs with calls give.

SELECT c.a FROM (SELECT k, LLM('...', text) AS a FROM t) AS c JOIN g USING (k) LIMIT 3

What is left of it once the calls are answered reads the table of an inner SELECT, and gives more
rows the more that table has. So it can stop at three.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from relquery.sql.binder.functions import FunctionCatalog, has_window, makes_rows, outermost_queries
from relquery.sql.binder.sources import joins_in, leaves
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Case,
    Constant,
    Derived,
    Expression,
    Join,
    Node,
    Query,
    Select,
    SetOperation,
    Source,
    Subquery,
    Table,
)


def enough_of(outer: Query, tables: Collection[str], functions: FunctionCatalog) -> int | None:
    """How many rows a statement returns at most, if it only gains rows as some tables grow; None if
    it needs all of theirs.

    outer: what is left of it. tables: of its SELECTs with calls.
    """
    limit = outer.limit
    if limit is None or limit.is_share or outer.order is not None:
        return None
    rows, skipped = _number(limit.limit), 0 if limit.offset is None else _number(limit.offset)
    grows = _Growth(frozenset(tables), functions).of_query(outer, is_top=True)
    return rows if grows and skipped is not None else None


def _number(value: Expression | None) -> int | None:
    is_number = isinstance(value, Constant) and value.kind == "INTEGER"
    return int(value.text) if isinstance(value, Constant) and is_number else None


@dataclass(frozen=True, slots=True)
class _Growth:
    """Tells whether queries only gain rows where tables do. tables: which do."""

    tables: frozenset[str]
    functions: FunctionCatalog

    def _reads(self, node: Node | None) -> bool:
        return node is not None and any(
            one.table.lower() in self.tables for one in node.find_all(Table)
        )

    def of_query(self, query: Query, *, is_top: bool = False) -> bool:
        """Whether a query does."""
        inside = self
        for entry in query.entries:
            if inside._reads(entry) and not inside.of_query(entry.query):
                return False
            if inside._reads(entry):
                inside = _Growth(inside.tables | {entry.name.lower()}, self.functions)
        return not inside._reads(query) or inside._of_body(query, is_top=is_top)

    def _of_body(self, query: Query, *, is_top: bool) -> bool:
        has_more = bool(query.modifiers) if not is_top else query.distinct is not None
        if has_more:
            return False
        if isinstance(query, SetOperation):
            is_union = query.kind == "UNION" and query.is_all
            return is_union and all(map(self.of_query, query.branches))
        return isinstance(query, Select) and self._of_select(query)

    def _of_select(self, select: Select) -> bool:
        functions = self.functions
        if functions.in_select(select) or select.qualify is not None or select.sample is not None:
            return False
        if any(self._reads(one) or has_window(one) or makes_rows(one) for one in select.items):
            return False
        conditions = build.conjuncts(select.where)
        return self._of_source(select.source) and all(map(self._of_condition, conditions))

    def _of_source(self, source: Source | None) -> bool:
        if any(not self._of_join(join) for join in joins_in(source)):
            return False
        inner = [one.query for one in leaves(source) if isinstance(one, Derived)]
        others = [one for one in leaves(source) if not isinstance(one, Derived | Table)]
        return all(map(self.of_query, inner)) and not any(map(self._reads, others))

    def _of_join(self, join: Join) -> bool:
        if not self._reads(join):
            return True
        if join.method not in ("REGULAR", "CROSS", "NATURAL") or join.kind == "FULL":
            return False
        if self._reads(join.condition):
            grows = all(map(self._of_condition, build.conjuncts(join.condition)))
            return grows and join.kind in ("INNER", "SEMI")
        is_open = {"LEFT": join.right, "ANTI": join.right, "RIGHT": join.left}.get(join.kind)
        return not self._reads(is_open)

    def _of_condition(self, condition: Expression) -> bool:
        if not self._reads(condition):
            return True
        if isinstance(condition, Case) and len(condition.branches) == 1:
            (branch,) = condition.branches  # CASE WHEN EXISTS (...) THEN true ELSE false END
            is_plain = [build.boolean(True).key, build.boolean(False).key]
            values = [one.key for one in (branch.value, condition.default) if one is not None]
            return values == is_plain and self._of_condition(branch.condition)
        is_match = isinstance(condition, Subquery) and condition.kind in ("EXISTS", "ANY")
        return is_match and all(map(self.of_query, outermost_queries(condition)))
