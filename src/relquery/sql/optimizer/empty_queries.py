"""Queries of which no row is read have none: those below LIMIT 0 or a condition that is never true.

SELECT a, count(*) FROM (SELECT LLM('...', text) AS a FROM t) GROUP BY a LIMIT 0
=> SELECT a, count(*) FROM (SELECT LLM('...', text) AS a FROM t WHERE false) WHERE false
   GROUP BY a LIMIT 0

SELECT max(a) FROM (SELECT LLM('...', text) AS a FROM t) WHERE 1 = 0
=> SELECT max(a) FROM (SELECT LLM('...', text) AS a FROM t WHERE false) WHERE false

SELECT * FROM u LEFT JOIN (SELECT LLM('...', text) AS a FROM t) ON false
=> SELECT * FROM u LEFT JOIN (SELECT LLM('...', text) AS a FROM t WHERE false) ON false
"""

from __future__ import annotations

from collections.abc import Iterator

from relquery.errors import QueryError
from relquery.sql.binder.call import Call
from relquery.sql.binder.sources import entry_of
from relquery.sql.optimizer.push_limits import number_of
from relquery.sql.optimizer.reads import FALSE, Lookup, asks, reads_nothing
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Constant, Expression, Function, Join, Node, Query, Select

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
    for select in statement.find_all(Select):
        is_false = _is_never_true(select.where, lookup)
        if is_false and not reads_nothing(select) and asks(select):
            select.where = build.boolean(False)
            return True
    unread = [node for node in _unread_in(statement, lookup) if asks(node)]
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


def _unread_in(statement: Query, lookup: Lookup) -> Iterator[Node]:
    """The queries and sources of which no row is read."""
    for join in statement.find_all(Join):
        if _is_never_true(join.condition, lookup):
            yield from (join.args[side] for side in _SIDES.get(join.kind, ()))
    for query in statement.find_all(Query):
        if query.limit is not None and number_of(query.limit.limit) == 0:
            yield query
        elif isinstance(query, Select):
            if any(_is_never_true(one, lookup) for one in (query.having, query.qualify)):
                yield query
            elif reads_nothing(query) and query.source is not None:
                is_one = lookup.functions.in_select(query)  # row of no rows
                yield from (query.source, *_aggregated(query, lookup)) if is_one else (query,)


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
