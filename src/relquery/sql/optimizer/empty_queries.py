"""Queries of which no row is read have none: those below LIMIT 0 or a condition that is never true.

SELECT a, count(*) FROM (SELECT LLM('...', text) AS a FROM t) GROUP BY a LIMIT 0
=> SELECT a, count(*) FROM (SELECT LLM('...', text) AS a FROM t WHERE false) WHERE false
   GROUP BY a LIMIT 0

SELECT max(a) FROM (SELECT LLM('...', text) AS a FROM t) WHERE 1 = 0
=> SELECT max(a) FROM (SELECT LLM('...', text) AS a FROM t WHERE false) WHERE false

SELECT * FROM u LEFT JOIN (SELECT LLM('...', text) AS a FROM t) ON false
=> SELECT * FROM u LEFT JOIN (SELECT LLM('...', text) AS a FROM t WHERE false) ON false

SELECT id FROM t LIMIT 0 INTERSECT SELECT LLM('...', text) FROM t
=> SELECT id FROM t WHERE false LIMIT 0 INTERSECT SELECT LLM('...', text) FROM t WHERE false
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relquery.errors import QueryError
from relquery.sql.binder.call import Call
from relquery.sql.binder.normalize import has_grouping_sets
from relquery.sql.binder.sources import entry_of
from relquery.sql.optimizer.push_limits import number_of
from relquery.sql.optimizer.reads import FALSE, Lookup, asks, reads_nothing
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Constant,
    Expression,
    Function,
    Join,
    Node,
    Query,
    Select,
    SetOperation,
)

_IS_FALSE = "is false"
"""Note on a condition without columns: whether it is false or NULL."""
# The sides of a join of which no row is read if its condition is never true.
_SIDES = {
    "INNER": ("left", "right"),
    "SEMI": ("left", "right"),
    "LEFT": ("right",),
    "ANTI": ("right",),
    "RIGHT": ("left",),
}


def empty_queries(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`."""
    empty = _Emptiness(lookup)
    for select in statement.find_all(Select):
        is_false = _is_never_true(select.where, lookup) or empty.is_of(select.source)
        if is_false and not reads_nothing(select) and asks(select):
            select.where = build.boolean(False)
            return True
    unread = [node for node in _unread_in(statement, empty) if asks(node)]
    if unread:
        within = {id(one) for node in unread for one in node.find_all(tree.Table)}
        for entry in statement.find_all(tree.Entry):
            tables = [one for one in statement.find_all(tree.Table) if entry_of(one) is entry]
            if entry.place == "map" and tables and all(id(one) in within for one in tables):
                unread.append(entry.query)
    selects = (select for node in unread for select in node.find_all(Select))
    full = [one for one in selects if not reads_nothing(one)]
    for select in full:
        select.where = build.boolean(False)
    return bool(full)


def _unread_in(statement: Query, empty: _Emptiness) -> Iterator[Node]:
    """The queries and sources of which no row is read."""
    for join in statement.find_all(Join):
        if _is_never_true(join.condition, empty.lookup):
            yield from (join.args[side] for side in _SIDES.get(join.kind, ()))
    for node in statement.find_all(Query, Join):
        if empty.is_of(node):
            yield node
        elif isinstance(node, Select) and reads_nothing(node) and node.source is not None:
            yield from (node.source, *_aggregated(node, empty.lookup))  # one row, of no rows


@dataclass(frozen=True, slots=True)
class _Emptiness:
    """Which queries and parts of FROM clauses have no rows, whatever the tables have."""

    lookup: Lookup
    known: dict[int, bool] = field(default_factory=dict)

    def is_of(self, node: Node | None) -> bool:
        """Whether a node has none."""
        if id(node) not in self.known:
            self.known[id(node)] = node is not None and self._is_of(node)
        return self.known[id(node)]

    def _is_of(self, node: Node) -> bool:
        if isinstance(node, Query) and node.limit is not None and number_of(node.limit.limit) == 0:
            return True
        if isinstance(node, Select):
            if any(_is_never_true(one, self.lookup) for one in (node.having, node.qualify)):
                return True
            is_of_groups = bool(node.keys) and not has_grouping_sets(node)
            is_of_rows = is_of_groups or not self.lookup.functions.in_select(node)
            return (reads_nothing(node) or self.is_of(node.source)) and is_of_rows
        if isinstance(node, SetOperation | Join):
            parts = node.branches if isinstance(node, SetOperation) else [node.left, node.right]
            kind = node.kind if node.args.get("ref_type") != "POSITIONAL" else "FULL"
            found = list(map(self.is_of, parts))
            first = {"EXCEPT": found[:1], "LEFT": found[:1], "ANTI": found[:1], "RIGHT": found[1:]}
            is_inner = kind in ("INTERSECT", "INNER", "SEMI")
            return any(found) if is_inner else all(first.get(kind, found))
        entry = entry_of(node) if isinstance(node, tree.Table) else None
        query = node.query if isinstance(node, tree.Derived) else entry and entry.query
        return self.is_of(query)


def _aggregated(select: Select, lookup: Lookup) -> Iterator[Node]:
    for item in select.items:
        yield from lookup.functions.inside(item)


def _is_never_true(condition: Expression | None, lookup: Lookup) -> bool:
    return any(_is_false(part, lookup) for part in build.conjuncts(condition))


def _is_false(condition: Expression, lookup: Lookup) -> bool:
    """Whether a condition is false or NULL, whatever the row."""
    if _IS_FALSE not in condition.meta:
        is_false = all(_is_constant(node, lookup) for node in condition.walk())
        if is_false and condition.key != FALSE:
            false = f"SELECT ({parser().sql(condition)}) IS NOT TRUE"
            try:
                is_false = lookup.database.fetch(false).column(0).to_pylist() == [True]
            except QueryError:
                is_false = False
        condition.meta[_IS_FALSE] = is_false
    return bool(condition.meta[_IS_FALSE])


def _is_constant(node: Node, lookup: Lookup) -> bool:
    """Whether a node reads no row and has the same value each time it is computed."""
    if isinstance(node, tree.Window | Call):
        return False
    if isinstance(node, Function):  # the list has aggregates, macros and volatile functions
        return not node.schema and node.name.lower() not in lookup.functions.listed
    plain = (Constant, tree.Comparison, tree.Conjunction, tree.Operator, tree.Cast, tree.Between)
    return isinstance(node, plain) or not isinstance(node, Expression | Query)
