"""Calls on aggregates: `SELECT LLM('...', sum(x)) FROM t GROUP BY k` asks once per group.

SELECT k, LLM('...', sum(x)) FROM t GROUP BY k
=> SELECT key, LLM('...', total) FROM (SELECT k AS key, sum(x) AS total FROM t GROUP BY k)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from relquery.errors import UnsupportedQueryError
from relquery.sql.aggregates import Aggregates
from relquery.sql.normalize import conjuncts, is_order_name, without_alias
from relquery.sql.scopes import calls_in, has_call
from relquery.sql.source import readable, to_sql
from relquery.sql.sources import FIELD_NAME, Sources

_INNER = ("from_", "joins", "laterals", "where", "sample", "group")
_OUTER = ("with_", "distinct", "qualify", "windows", "order", "limit", "offset")
_NOT_PLAIN = ("grouping_sets", "cube", "rollup", "totals")


def asks_about_groups(select: exp.Select, aggregates: Aggregates) -> bool:
    """Whether an argument of a call in a normalized SELECT aggregates."""
    return any(
        next(aggregates.inside(argument), None) is not None
        for call in calls_in(select)
        for argument in call.expressions
        if aggregates.around(call, select) is False
    )


def over_groups(
    select: exp.Select, names: list[str], sources: Sources, aggregates: Aggregates
) -> exp.Select:
    """A SELECT without aggregates over a subquery that has them all; columns named `names`.

    Raises UnsupportedQueryError for GROUPING SETS, CUBE and ROLLUP.
    """
    group = select.args.get("group")
    if group is not None and any(group.args.get(form) for form in _NOT_PLAIN):
        raise UnsupportedQueryError(
            "An LLM call on aggregates stands beside GROUPING SETS, CUBE or ROLLUP. Group in a "
            "subquery and call LLM on its rows."
        )
    split = _Split(sources, aggregates, frozenset(map(str.lower, names)))
    for key in _group_keys(select, group, aggregates):
        split.add_key(key)
    outer = exp.Select()
    items = [split.outside(without_alias(item)) for item in select.expressions]
    outer.set(
        "expressions",
        [exp.alias_(item, name, quoted=True) for item, name in zip(items, names, strict=True)],
    )
    having = conjuncts(select.args["having"].this if select.args.get("having") else None)
    for condition in having:
        if has_call(condition):
            outer.where(split.outside(condition), copy=False)
    for clause in _OUTER:
        node = select.args.get(clause)
        if isinstance(node, list):
            outer.set(clause, [split.outside(part) for part in node])
        elif node is not None:
            outer.set(clause, node.copy() if clause == "with_" else split.outside(node))
    inner = exp.Select(**{clause: select.args.get(clause) for clause in _INNER}).copy()
    inner.set("expressions", [exp.alias_(node, name) for name, node in split.inner.items()])
    for condition in having:
        if not has_call(condition):
            inner.having(condition, copy=False)
    outer.set("from_", exp.From(this=inner.subquery("_rq_groups")))
    return outer


def _group_keys(
    select: exp.Select, group: exp.Expr | None, aggregates: Aggregates
) -> list[exp.Expr]:
    if group is None:
        return []
    if not group.args.get("all"):
        return list(group.expressions)
    items = map(without_alias, select.expressions)
    return [item for item in items if next(aggregates.inside(item), None) is None]


@dataclass(slots=True)
class _Split:
    """Takes expressions apart into what the subquery computes and what is left outside.

    inner: columns of the subquery by name.
    """

    sources: Sources
    aggregates: Aggregates
    names: frozenset[str]
    inner: dict[str, exp.Expr] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)

    def add_key(self, key: exp.Expr) -> None:
        self._column(key)

    def outside(self, node: exp.Expr) -> exp.Expr:
        """A copy of an expression that reads the subquery's columns."""
        node = node.copy()
        for call in calls_in(node):
            for argument in call.expressions:
                if not isinstance(argument, exp.Column):
                    argument.meta.setdefault(FIELD_NAME, readable(argument))
        return node.transform(self._part, copy=False)

    def _part(self, node: exp.Expr) -> exp.Expr:
        if is_order_name(node, self.names):
            return node
        if isinstance(node, exp.Query) or not (self._is_key(node) or self._folds(node)):
            return node
        return self._column(node)

    def _is_key(self, node: exp.Expr) -> bool:
        return self._text(node) in self._known

    def _folds(self, node: exp.Expr) -> bool:
        """Whether a node is an aggregate with all that belongs to it, such as its FILTER."""
        if isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
            return self._folds(node.this)
        return self.aggregates.is_aggregate(node)

    def _column(self, node: exp.Expr) -> exp.Column:
        name = self._known.setdefault(self._text(node), f"_rq_group_{len(self._known)}")
        self.inner.setdefault(name, node.copy())
        column = exp.column(name)
        is_column = isinstance(node, exp.Column)
        column.meta[FIELD_NAME] = node.meta.get(
            FIELD_NAME, node.name if is_column else readable(node)
        )
        return column

    def _text(self, node: exp.Expr) -> str:
        resolved = self.sources.resolve(node) if isinstance(node, exp.Column) else None
        return "\0".join(resolved).lower() if resolved else to_sql(node)
