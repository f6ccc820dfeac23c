"""Queries with calls that a FROM clause reads: derived tables and WITH entries, with their readers.

Only what is read as it stands counts: not through PIVOT or a sample, and no MATERIALIZED entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from relquery.sql.binder.call import calls_directly, has_call
from relquery.sql.binder.normalize import restore_columns
from relquery.sql.binder.scopes import Context, entry_of, is_recursive, visible_entries
from relquery.sql.binder.sources import Sources, leaves
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    Derived,
    Entry,
    Expression,
    Function,
    Node,
    Query,
    Select,
    Source,
    Table,
)

Place = Callable[[Column], int | None]
"""The place of a column in a query; None for a column of anything else."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A place that reads a query. item: the table of the SELECT's FROM clause that does."""

    select: Select
    item: Source


@dataclass(frozen=True, slots=True)
class Read:
    """A query with calls, and all places that read it. entry: the WITH entry that it is of."""

    query: Query
    readers: tuple[Reader, ...]
    entry: Entry | None = None

    def names(self, reader: Reader, lookup: Lookup) -> list[str] | None:
        """Lower-case names of the columns, as a reader sees them."""
        columns = lookup.columns(self.query)
        if columns is None:
            return None
        names = [name.lower() for name, _ in columns]
        for given in ([] if self.entry is None else self.entry.columns, reader.item.columns):
            names[: len(given)] = map(str.lower, given)
        return names

    def places(
        self, reader: Reader, lookup: Lookup, sources: Sources | None = None
    ) -> Place | None:
        """Finds the query's columns among those of a reader's SELECT, or of other sources."""
        names, sources = self.names(reader, lookup), sources or lookup.sources(reader.select)
        if names is None or sources is None:
            return None
        alias = reader.item.name.lower()
        others = {name.lower() for columns in sources.columns.values() for name in columns}

        def place(column: Column) -> int | None:
            name = column.name.lower()
            if alias:
                found = sources.resolve(column)
                is_own = found is not None and found[0].lower() == alias
            else:
                is_own = len(column.names) == 1 and name not in others
            return names.index(name) if is_own and names.count(name) == 1 else None

        return place


def reads_in(tree: Query) -> Iterator[Read]:
    """The queries with calls that are read by FROM clauses alone, outer ones first."""
    for select in list(tree.find_all(Select)):
        for item in leaves(select.source):
            query = derived(item)
            if query is not None and asks(query):
                yield Read(query, (Reader(select, item),))
    for entry in list(tree.find_all(Entry)):
        is_open = entry.place == "map" and not (is_recursive(entry) or entry.is_materialized)
        if is_open and asks(entry) and (readers := _readers_of(entry, tree)) is not None:
            yield Read(entry.query, readers, entry)


def asks(node: Node) -> bool:
    """Whether a part of a statement has calls, or reads a WITH entry that does."""
    entries = map(entry_of, node.find_all(Table))
    return has_call(node) or any(entry is not None and asks(entry.query) for entry in entries)


def reads_calls(select: Select) -> bool:
    """Whether a table of a FROM clause has columns that may be answers."""
    return any(map(asks, leaves(select.source)))


def is_by_chance(node: Node, lookup: Lookup) -> bool:
    """Whether a part of a query may give other rows when it is computed again."""
    if isinstance(node, Query) and node.limit is not None and node.order is None:
        return not (isinstance(node, Select) and calls_directly(node))
    is_volatile = isinstance(node, Function) and node.name.lower() in lookup.functions.volatile
    return is_volatile or "sample" in node.args


def carried(query: Query, before: Node, after: Node, lookup: Lookup) -> Query | None:
    """A query that has the rows at one place of a statement that another has elsewhere; None if
    there is none. It brings the WITH entries along that are not seen there.
    """
    if any(is_by_chance(part, lookup) for part in query.walk()) or has_call(query):
        return None
    known = {one.name.lower(): one for one in visible_entries(before)}
    there = {one.name.lower(): one for one in visible_entries(after)}
    named = {one.table.lower() for one in query.find_all(Table) if len(one.path) == 1}
    if all(known.get(name) is there.get(name) for name in named):
        return query
    whole = Context.of(before).around(query)
    own = {one.name.lower() for one in whole.entries}
    return None if has_call(whole) or (named - own) & there.keys() else whole


def derived(item: Source) -> Query | None:
    """The query of a derived table; None for any other table."""
    return item.query if isinstance(item, Derived) and item.sample is None else None


def restored(condition: Expression, sources: Sources) -> Expression:
    """A copy of a condition in which every column is one, also that of `title.upper()`."""
    holder = build.select((), where=condition.copy())
    restore_columns(holder, sources)
    assert holder.where is not None
    return holder.where


def _readers_of(entry: Entry, tree: Query) -> tuple[Reader, ...] | None:
    """All readers of a WITH entry; None if something else reads it."""
    readers: list[Reader] = []
    for table in tree.find_all(Table):
        if entry_of(table) is entry:
            select = table.ancestor(Select)
            if (
                select is None
                or table.sample
                or all(one is not table for one in leaves(select.source))
            ):
                return None
            readers.append(Reader(select, table))
    return tuple(readers)
