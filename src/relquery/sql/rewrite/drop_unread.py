"""Columns that nothing reads are not computed.

SELECT id FROM (SELECT id, LLM('...', text) AS a FROM t)
=> SELECT id FROM (SELECT id, CAST(NULL AS TEXT) AS a FROM t)

WITH c AS (SELECT LLM('...', text) FROM t) SELECT 1  =>  SELECT 1
EXISTS (SELECT LLM('...', text) FROM t)              =>  EXISTS (SELECT CAST(NULL AS TEXT) FROM t)
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from relquery.sql.read.scopes import has_call
from relquery.sql.read.source import DIALECT
from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.sources import Read, Reader, reads_calls, reads_in


def drop_unread(tree: exp.Expr, lookup: Lookup) -> exp.Expr | None:
    """The rule of this module; see `rules`."""
    for read in reads_in(tree):
        if not read.readers:
            _drop_entry(read, lookup)
            return tree
        unread = _unread(read, lookup)
        if unread and _drop(read.query, unread, lookup):
            return tree
    for exists in tree.find_all(exp.Exists):
        query = exists.this
        if isinstance(query, exp.Select) and has_call(query):
            every = set(range(len(query.expressions)))
            if not lookup.aggregates.in_select(query) and _drop(query, every, lookup):
                return tree
    return None


def _drop_entry(read: Read, lookup: Lookup) -> None:
    entry = read.query.parent
    assert isinstance(entry, exp.CTE)
    clause = entry.parent
    entry.pop()
    if clause is not None and not clause.expressions:
        clause.pop()


def _unread(read: Read, lookup: Lookup) -> set[int]:
    """The columns of a query that none of its readers reads, by their place."""
    unread: set[int] | None = None
    for reader in read.readers:
        names = read.names(reader, lookup)
        if names is None or _reads_all(reader):
            return set()
        used = {node.name.lower() for node in _outside(reader) if _is_used(node)}
        found = {at for at, name in enumerate(names) if name not in used}
        unread = found if unread is None else unread & found
    return unread or set()


def _is_used(node: exp.Expr) -> bool:
    """Whether a node names something, and does not give a name."""
    return isinstance(node, exp.Identifier) and not isinstance(
        node.parent, exp.Alias | exp.TableAlias
    )


def _reads_all(reader: Reader) -> bool:
    """Whether a SELECT may read all columns of one of its tables without naming them."""
    alias = reader.item.alias_or_name.lower()
    joins = reader.select.args.get("joins") or ()
    if any(join.method == "NATURAL" for join in joins):
        return True
    return any(_stands_for_all(node, reader.select, alias) for node in _outside(reader))


def _stands_for_all(node: exp.Expr, select: exp.Select, alias: str) -> bool:
    if isinstance(node, exp.Star):
        column = node.parent if isinstance(node.parent, exp.Column) else None
        if isinstance(node.parent, exp.Count) or node.find_ancestor(exp.Select) is not select:
            return False
        return column is None or column.table.lower() == alias
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return not node.table and bool(alias) and node.name.lower() == alias
    return isinstance(node, exp.Columns | exp.PositionalColumn)


def _outside(reader: Reader) -> Iterator[exp.Expr]:
    """The nodes of a SELECT that may read one of its tables."""
    entries = reader.select.args.get("with_")
    return reader.select.walk(prune=lambda node: node is reader.item or node is entries)


def _drop(query: exp.Expr, unread: set[int], lookup: Lookup) -> bool:
    """Replace columns of a query with NULL, in place. Returns whether there was one."""
    if isinstance(query, exp.Subquery):
        return _drop(query.this, unread, lookup)
    if isinstance(query, exp.Union):
        if query.args.get("distinct") or query.args.get("by_name"):
            return False
        branches = (query.this, query.expression)
        return any(_drop(branch, unread, lookup) for branch in branches)
    return isinstance(query, exp.Select) and _drop_items(query, unread, lookup)


def _drop_items(select: exp.Select, unread: set[int], lookup: Lookup) -> bool:
    if select.args.get("distinct") or _counts_columns(select):
        return False
    items, columns = lookup.items(select), lookup.columns(select)
    if items is None or columns is None or len(items) != len(columns):
        return False
    places = [at for at in sorted(unread) if _may_drop(at, items, select, lookup)]
    for at in places:
        name, kind = columns[at]
        items[at] = exp.alias_(_null(kind, select, lookup), name, quoted=True)
    if places:
        select.set("expressions", items)
    return bool(places)


def _counts_columns(select: exp.Select) -> bool:
    """Whether a clause names an item of the select list by its number, or all of them."""
    clauses = [clause for key in ("group", "order") if (clause := select.args.get(key))]
    keys = [key for clause in clauses for key in clause.expressions]
    of_all = any(clause.args.get("all") for clause in clauses)
    return of_all or any(_value(key).find(exp.Literal, exp.Var) is _value(key) for key in keys)


def _value(key: exp.Expr) -> exp.Expr:
    return key.this if isinstance(key, exp.Ordered) else key


def _may_drop(at: int, items: list[exp.Expr], select: exp.Select, lookup: Lookup) -> bool:
    item = items[at]
    reads = has_call(item) or (item.find(exp.Column) and reads_calls(select))
    if not reads or item.find(exp.Explode, exp.UDTF) or lookup.aggregates.is_volatile(item):
        return False
    name = item.alias_or_name.lower()
    return not name or not any(
        node.name.lower() == name
        for part in [*(one for one in items if one is not item), *_clauses(select)]
        for node in part.find_all(exp.Identifier)
        if not (isinstance(part, exp.Alias) and node is part.args["alias"])
    )


def _clauses(select: exp.Select) -> Iterator[exp.Expr]:
    """The clauses of a SELECT that may name an item of its list."""
    for key, node in select.args.items():
        if key not in ("expressions", "from_", "with_") and node:
            yield from (node if isinstance(node, list) else [node])


def _null(kind: str, select: exp.Select, lookup: Lookup) -> exp.Expr:
    """NULL of a type; as an aggregate where one makes all rows one."""
    of_all_rows = lookup.aggregates.in_select(select) and not select.args.get("group")
    value: exp.Expr = exp.Min(this=exp.null()) if of_all_rows else exp.null()
    return exp.cast(value, exp.DataType.build(kind, DIALECT, udt=True))
