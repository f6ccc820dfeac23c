"""Columns that nothing reads are not computed.

SELECT id FROM (SELECT id, LLM('...', text) AS a FROM t)
=> SELECT id FROM (SELECT id, CAST(NULL AS TEXT) AS a FROM t)

WITH c AS (SELECT LLM('...', text) FROM t) SELECT 1  =>  SELECT 1
EXISTS (SELECT LLM('...', text) FROM t)              =>  EXISTS (SELECT CAST(NULL AS TEXT) FROM t)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import clauses_of, makes_rows
from relquery.sql.binder.normalize import name_of
from relquery.sql.binder.sources import joins_in, leaves
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.reads import Read, Reader, reads_calls, reads_in
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Column,
    Constant,
    Entry,
    Expression,
    Function,
    Join,
    Limit,
    Node,
    Ordered,
    Pivot,
    Position,
    Query,
    Select,
    SetOperation,
    Star,
    Subquery,
)


def drop_unread(tree: Query, lookup: Lookup) -> Query | None:
    """The rule of this module; see `rules`."""
    for read in reads_in(tree):
        if read.entry is not None and not read.readers:
            _drop_entry(read.entry)
            return tree
        unread = _unread(read, lookup)
        if unread and _drop(read.query, unread, lookup):
            return tree
    for exists in tree.find_all(Subquery):
        query = exists.query
        if exists.kind == "EXISTS" and isinstance(query, Select) and has_call(query):
            every = set(range(len(query.items)))
            if not lookup.functions.in_select(query) and _drop_items(query, every, lookup):
                return tree
    return None


def _drop_entry(entry: Entry) -> None:
    query = entry.ancestor(Query)
    assert query is not None
    query.entries = [one for one in query.entries if one is not entry]


def _unread(read: Read, lookup: Lookup) -> set[int]:
    """The columns of a query that none of its readers reads, by their place."""
    unread: set[int] | None = None
    for reader in read.readers:
        names = read.names(reader, lookup)
        if names is None or _reads_all(reader):
            return set()
        used = set(_names_in(_outside(reader)))
        found = {at for at, name in enumerate(names) if name not in used}
        unread = found if unread is None else unread & found
    return unread or set()


def _names_in(nodes: Iterable[Node]) -> Iterator[str]:
    """Lower-case names that may be those of columns."""
    for node in nodes:
        names: list[str] = []
        if isinstance(node, Column):
            names = node.names
        elif isinstance(node, Star):
            names = [node.table]  # which may be a column: `s.*` of a struct
        elif isinstance(node, Function):
            names = [node.catalog, node.schema]  # of `title.upper()`
        elif isinstance(node, Join):
            names = node.using
        yield from (name.lower() for name in names if name)


def _reads_all(reader: Reader) -> bool:
    """Whether a SELECT may read all columns of one of its tables without naming them."""
    source, alias = reader.select.source, reader.item.name.lower()
    if any(join.method == "NATURAL" for join in joins_in(source)):
        return True
    if any(isinstance(one, Pivot) for one in leaves(source)):
        return True
    return any(_stands_for_all(node, reader.select, alias) for node in _outside(reader))


def _stands_for_all(node: Node, select: Select, alias: str) -> bool:
    if isinstance(node, Star):
        if isinstance(node.parent, Ordered) and node.pattern is None:
            return False  # ORDER BY ALL is about the select list
        is_of_select = not node.table and node.ancestor(Select) is select
        return node.is_columns or is_of_select or node.table.lower() == alias
    if isinstance(node, Column | Function) and alias:
        (first, *more) = node.names if isinstance(node, Column) else [node.schema, node.catalog]
        return first.lower() == alias and not any(more)
    return isinstance(node, Position)


def _outside(reader: Reader) -> Iterator[Node]:
    """The nodes of a SELECT that may read one of its tables."""
    entries = reader.select.args.get("cte_map")
    return reader.select.walk(prune=lambda node: node is reader.item or node is entries)


def _drop(query: Query, unread: set[int], lookup: Lookup) -> bool:
    """Replace columns of a query with NULL, in place. Returns whether there was one."""
    if isinstance(query, SetOperation):
        is_plain = all(isinstance(one, Limit) for one in query.modifiers)
        if query.kind != "UNION" or not query.is_all or not is_plain:
            return False
        return any(_drop(branch, unread, lookup) for branch in query.branches)
    return isinstance(query, Select) and _drop_items(query, unread, lookup)


def _drop_items(select: Select, unread: set[int], lookup: Lookup) -> bool:
    if (select.distinct is not None and not select.distinct.on) or _counts_columns(select):
        return False  # of rows that DISTINCT compares; DISTINCT ON compares what it names
    items, columns = lookup.items(select), lookup.columns(select)
    if items is None or columns is None or len(items) != len(columns):
        return False
    places = [at for at in sorted(unread) if _may_drop(at, items, select, lookup)]
    for at in places:
        name, kind = columns[at]
        items[at] = _null(kind, select, lookup).named(name)
    if places:
        select.items = items
    return bool(places)


def _counts_columns(select: Select) -> bool:
    """Whether a clause names an item of the select list by its number, or all of them."""
    ordered = [] if select.order is None else [key.value for key in select.order.keys]
    chosen = [] if select.distinct is None else select.distinct.on
    of_number = (isinstance(key, Constant | Star) for key in [*select.keys, *ordered, *chosen])
    return select.is_grouped_by_all or any(of_number)


def _may_drop(at: int, items: list[Expression], select: Select, lookup: Lookup) -> bool:
    item = items[at]
    reads = has_call(item) or (item.find(Column) is not None and reads_calls(select))
    if not reads or makes_rows(item) or lookup.functions.is_volatile(item):
        return False
    clauses = [one for one in clauses_of(select) if one.place != "select_list"]
    others = [*clauses, *(one for one in items if one is not item)]
    return name_of(item).lower() not in _names_in(node for one in others for node in one.walk())


def _null(kind: str, select: Select, lookup: Lookup) -> Expression:
    """NULL of a type; as an aggregate where one makes all rows one."""
    of_all_rows = lookup.functions.in_select(select) and not select.keys
    value = build.function("min", build.null()) if of_all_rows else build.null()
    return build.cast(value, parser().type(kind))
