"""Calls about groups: `SELECT k, LLM('...', k, sum(x)) FROM t GROUP BY k` makes a call per group.

SELECT k, LLM('...', k, sum(x)) FROM t GROUP BY k
=> SELECT key, LLM('...', key, total) FROM (SELECT k AS key, sum(x) AS total FROM t GROUP BY k)

So a call sees the final groups, whatever produces them (ROLLUP, HAVING, no GROUP BY at all).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from relquery.sql import names as ours
from relquery.sql.form.normalize import conjuncts, group_keys, is_order_name, without_alias
from relquery.sql.functions.naming import field_name
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.from_clause import Sources
from relquery.sql.read.scopes import calls_in, compared_with_query, has_call, is_subquery
from relquery.sql.read.source import FIELD_NAME, unnumbered

_INNER = ("from_", "joins", "laterals", "where", "sample", "group")
_OUTER = ("with_", "distinct", "qualify", "windows", "order", "limit", "offset")
# Functions of the keys that only the grouping SELECT can compute.
_OF_GROUPS = (exp.Grouping, exp.GroupingId)


def asks_about_groups(select: exp.Select, sources: Sources, aggregates: Aggregates) -> bool:
    """Whether a call in a normalized SELECT is about a group and not about its rows."""
    if not aggregates.in_select(select):
        return False
    names = Texts(sources)
    keys = {names.text(key) for key in keys_of(select, aggregates)}
    return any(
        not aggregates.around(call, select)
        and call.find_ancestor(exp.Group, exp.Where) is None
        and not any(names.text(node) in keys for node in _up_to(call, select))
        for call in calls_in(select)
    )


def keys_of(select: exp.Select, aggregates: Aggregates) -> list[exp.Expr]:
    """The expressions that a normalized SELECT groups by."""
    group = select.args.get("group")
    if group is not None and group.args.get("all"):
        items = map(without_alias, select.expressions)
        # DuckDB does not count items without a column, so a table without rows has a group.
        return [
            item
            for item in items
            if next(aggregates.inside(item), None) is None and item.find(exp.Column)
        ]
    return group_keys(select)


def over_groups(
    select: exp.Select, names: list[str], sources: Sources, aggregates: Aggregates
) -> exp.Select:
    """A SELECT without aggregates over a subquery with all of them; its columns are `names`."""
    split = _Split(Texts(sources), aggregates, frozenset(map(str.lower, names)))
    for key in keys_of(select, aggregates):
        split.column(key)
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
    columns = [exp.alias_(node, name) for name, node in split.inner.items()]
    inner.set("expressions", columns or [exp.alias_(exp.Count(this=exp.Star()), ours.GROUP)])
    for condition in having:
        if not has_call(condition):
            inner.having(condition, copy=False)
    outer.set("from_", exp.From(this=inner.subquery(ours.GROUPS)))
    return outer


def _up_to(node: exp.Expr, top: exp.Expr) -> list[exp.Expr]:
    """A node and its ancestors below `top`."""
    found: list[exp.Expr] = []
    current: exp.Expr | None = node
    while current is not None and current is not top:
        found.append(current)
        current = current.parent
    return found


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts for expressions: equal expressions have equal texts."""

    sources: Sources

    def text(self, node: exp.Expr) -> str:
        """The text without outer parentheses and call numbers, with names in one spelling."""
        return unnumbered(node.unnest().transform(self._plain))

    def _plain(self, node: exp.Expr) -> exp.Expr:
        found = self.sources.resolve(node) if isinstance(node, exp.Column) else None
        if found:
            return exp.column(found[1], table=found[0], quoted=True)
        if isinstance(node, exp.Identifier):
            return exp.to_identifier(node.name.lower(), quoted=True)
        return node


@dataclass(slots=True)
class _Split:
    """Splits expressions into what the subquery computes and what stays outside.

    inner: columns of the subquery by name.
    """

    texts: Texts
    aggregates: Aggregates
    names: frozenset[str]
    inner: dict[str, exp.Expr] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)

    def outside(self, node: exp.Expr) -> exp.Expr:
        """A copy of an expression that reads the subquery's columns."""
        node = node.copy()
        for call in calls_in(node):
            for argument in call.expressions:
                if not isinstance(argument, exp.Column):
                    argument.meta.setdefault(FIELD_NAME, field_name(argument))
        return node.transform(self._part, copy=False)

    def column(self, node: exp.Expr) -> exp.Column:
        """The outer column for an expression that the subquery computes."""
        name = self._known.setdefault(self.texts.text(node), ours.group(len(self._known)))
        self.inner.setdefault(name, node.copy())
        column = exp.column(name)
        column.meta[FIELD_NAME] = node.meta_get(FIELD_NAME, field_name(node))
        return column

    def _part(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Ordered) or is_order_name(node, self.names):
            return node  # a key of ORDER BY, ascending, is written like what it orders by
        if self._is_key(node) or self._folds(node):
            return self.column(node)
        if (compared := compared_with_query(node)) is not None and has_call(node):
            whole = node.copy()  # its query stays unchanged
            whole.set(compared[0], self.outside(node.args[compared[0]]))
            return whole
        if compared is not None or is_subquery(node):
            return self.column(node)  # the group columns it reads exist in the subquery
        if isinstance(node, exp.Column) and node.table:
            return self._field_of_key(node)
        return node

    def _is_key(self, node: exp.Expr) -> bool:
        return self.texts.text(node) in self._known

    def _field_of_key(self, node: exp.Column) -> exp.Expr:
        """`info.year` where `info` is a key."""
        key = exp.column(node.args["table"].copy())
        if node.args.get("db") or self.texts.sources.resolve(node) or not self._is_key(key):
            return node
        field_of = exp.Dot(this=exp.paren(self.column(key)), expression=node.this.copy())
        field_of.meta[FIELD_NAME] = node.meta_get(FIELD_NAME, node.name)
        return field_of

    def _folds(self, node: exp.Expr) -> bool:
        """Whether a node is an aggregate, including clauses such as its FILTER."""
        if isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
            return self._folds(node.this)
        return isinstance(node, _OF_GROUPS) or self.aggregates.is_aggregate(node)
