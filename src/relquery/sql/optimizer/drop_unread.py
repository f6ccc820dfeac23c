"""Columns that nothing reads are not computed.

SELECT id FROM (SELECT id, LLM('...', text) AS a FROM t)
=> SELECT id FROM (SELECT id, CAST(NULL AS TEXT) AS a FROM t)

WITH c AS (SELECT LLM('...', text) FROM t) SELECT 1  =>  SELECT 1
EXISTS (SELECT LLM('...', text) FROM t)              =>  EXISTS (SELECT CAST(NULL AS TEXT) FROM t)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import clauses_of, has_window, makes_rows
from relquery.sql.binder.normalize import name_of
from relquery.sql.binder.sources import entry_of, joins_in, leaves
from relquery.sql.optimizer.reads import Lookup, Read, Reader, asks, joins_around, reads_in
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Column,
    Expression,
    FunctionCall,
    Join,
    Node,
    Query,
    Select,
    Star,
)


def drop_unread(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`."""
    read_entries = [entry_of(table) for table in statement.find_all(tree.Table)]
    for query in statement.find_all(Query):  # not by reads_in, which skips MATERIALIZED ones
        for entry in query.entries:
            if asks(entry) and all(read_entry is not entry for read_entry in read_entries):
                query.entries = [other for other in query.entries if other is not entry]
                return True
    for read in reads_in(statement):
        unread = [_unread_by(reader, read, lookup) for reader in read.readers]
        if unread and _drop(read.query, set.intersection(*unread), lookup):
            return True
    for exists in statement.find_all(tree.Subquery):
        query = exists.query
        if exists.kind == "EXISTS" and isinstance(query, Select) and has_call(query):
            every = set(range(len(query.items)))
            if not lookup.functions.in_select(query) and _drop_items(query, every, lookup):
                return True
    return False


def _unread_by(reader: Reader, read: Read, lookup: Lookup) -> set[int]:
    """The columns of a query that one of its readers does not read, by their place."""
    names = read.names(reader, lookup)
    outside = _beside(reader, lookup)  # the nodes that may read the query
    if names is None or _reads_all(reader, outside):
        return set()
    used = set(_names_in(outside, reader.item.name.lower()))
    return {index for index, name in enumerate(names) if name not in used}


def _beside(reader: Reader, lookup: Lookup) -> list[Node]:
    """The nodes of a SELECT beside one of its tables, without stars that do not stand for all."""
    select = reader.select
    left_out: list[Any] = [reader.item, select.args.get("cte_map")]
    written: list[Node] = []
    holder = select.ancestor(tree.Subquery)
    if holder is not None and holder.query is select and holder.kind == "EXISTS":
        left_out += [item for item in select.items if isinstance(item, Star)]
    else:
        stars = (star for item in select.items for star in item.find_all(Star))
        normal = lookup.normal(select) if any(map(_picks_columns, stars)) else None
        if normal is not None:
            left_out += select.items
            written = [node for item in normal[0].items for node in item.walk()]
    return _below(select, left_out) + written


def _below(top: Node, left_out: Sequence[Any]) -> list[Node]:
    """All nodes of a tree but some and what is below them."""

    def is_left_out(node: Node) -> bool:
        return any(node is other for other in left_out)

    return [node for node in top.walk(prune=is_left_out) if not is_left_out(node)]


def _picks_columns(star: Star) -> bool:
    return star.is_columns or bool(star.args.get("exclude_list"))


def _names_in(nodes: Iterable[Node], table: str) -> Iterator[str]:
    """Lower-case names that may be those of columns of a table; of any if it has no name."""
    for node in nodes:
        names: list[str] = []
        if isinstance(node, Column):
            is_other = len(node.names) == 2 and table not in ("", node.names[0].lower())
            names = node.names[:1] if is_other else node.names  # or a field of a struct
        elif isinstance(node, Star):
            names = [node.table]  # which may be a column: `s.*` of a struct
        elif isinstance(node, FunctionCall):
            names = [node.catalog, node.schema]  # of `title.upper()`
        elif isinstance(node, Join):
            names = node.using
        yield from (name.lower() for name in names if name)


def _reads_all(reader: Reader, outside: Iterable[Node]) -> bool:
    """Whether a SELECT may read all columns of one of its tables without naming them."""
    alias = reader.item.name.lower()
    source = reader.select.source
    is_natural = any(join.method == "NATURAL" for join in joins_in(source))
    is_pivot = any(isinstance(leaf, tree.Pivot) for leaf in leaves(source))

    # The columns of such a side are not among those of the join.
    is_hidden = any(
        side is join.right and join.kind in ("SEMI", "ANTI")
        for side, join in joins_around(reader.item)
    )

    def stands_for_all(node: Node) -> bool:
        if isinstance(node, Star):
            if isinstance(node.parent, tree.Ordered) and node.pattern is None:
                return False  # ORDER BY ALL is about the select list
            is_of_select = not node.table and node.ancestor(Select) is reader.select
            is_of_select &= node.is_columns or not is_hidden
            return node.is_columns or is_of_select or node.table.lower() == alias
        if isinstance(node, Column | FunctionCall) and alias:
            (first, *more) = node.names if isinstance(node, Column) else [node.schema, node.catalog]
            return first.lower() == alias and not any(more)
        return isinstance(node, tree.Position)

    return is_natural or is_pivot or any(map(stands_for_all, outside))


def _drop(query: Query, unread: set[int], lookup: Lookup) -> bool:
    """Replace columns of a query with NULL, in place. Returns whether there was one."""
    if isinstance(query, tree.SetOperation):
        is_plain = all(isinstance(modifier, tree.Limit) for modifier in query.modifiers)
        is_union_all = query.kind == "UNION" and query.is_all and is_plain
        return is_union_all and any(_drop(branch, unread, lookup) for branch in query.branches)
    return isinstance(query, Select) and _drop_items(query, unread, lookup)


def _drop_items(select: Select, unread: set[int], lookup: Lookup) -> bool:
    if not unread or _compares_items(select):
        return False
    items, columns = lookup.items(select), lookup.seen(select)
    if items is None or columns is None or len(items) != len(columns):
        return False
    places = [place for place in sorted(unread) if _may_drop(place, items, select, lookup)]
    for place in places:
        name, kind = columns[place]
        # As an aggregate where one makes all rows one.
        of_all_rows = lookup.functions.in_select(select) and not select.keys
        null = build.function("min", build.null()) if of_all_rows else build.null()
        items[place] = build.cast(null, parser().type(kind)).named(name)
    if places:
        select.items = items
    return bool(places)


def _compares_items(select: Select) -> bool:
    """Whether rows are compared by the select list, or by an item that a clause names by its number
    or as one of all."""
    ordered = [] if select.order is None else [key.value for key in select.order.keys]
    chosen = [] if select.distinct is None else select.distinct.on
    by_number = any(
        isinstance(key, tree.Constant | Star) for key in [*select.keys, *ordered, *chosen]
    )
    return select.is_grouped_by_all or by_number or (select.distinct is not None and not chosen)


def _may_drop(at: int, items: list[Expression], select: Select, lookup: Lookup) -> bool:
    item = items[at]
    is_read = item.find(Column) is not None and any(map(asks, leaves(select.source)))
    if not (has_call(item) or is_read):
        return False
    is_for_qualify = select.qualify is not None and has_window(item)
    if makes_rows(item) or is_for_qualify or lookup.functions.is_volatile(item):
        return False
    clauses = [clause for clause in clauses_of(select) if clause.place != "select_list"]
    others = [*clauses, *(other for other in items if other is not item)]
    nodes = (node for other in others for node in other.walk())
    return name_of(item).lower() not in _names_in(nodes, _NO_TABLE)


_NO_TABLE = " "
"""What no table is called: names of the select list have none before them."""
