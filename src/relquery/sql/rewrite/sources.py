"""Queries with calls that a FROM clause reads: derived tables and WITH entries, with their readers.

Only what is read as it stands counts: not through PIVOT or a sample, and no MATERIALIZED entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from relquery.sql.read.from_clause import Sources
from relquery.sql.read.scopes import has_call, visible_ctes
from relquery.sql.rewrite.lookup import Lookup

_MODIFIERS = ("pivots", "sample", "with_", "limit", "offset", "order", "joins", "laterals")


@dataclass(frozen=True, slots=True)
class Reader:
    """A place that reads a query. at: its place among the tables of the SELECT; 0 is FROM's own."""

    select: exp.Select
    item: exp.Expr
    at: int


@dataclass(frozen=True, slots=True)
class Read:
    """A query with calls, and all places that read it. renamed: names given by a WITH entry."""

    query: exp.Query
    readers: tuple[Reader, ...]
    renamed: tuple[str, ...] = ()

    def names(self, reader: Reader, lookup: Lookup) -> list[str] | None:
        """Lower-case names of the columns, as a reader sees them."""
        columns = lookup.columns(self.query)
        if columns is None:
            return None
        names = [name.lower() for name, _ in columns]
        for given in (self.renamed, reader.item.alias_column_names):
            names[: len(given)] = [name.lower() for name in given]
        return names


def reads_in(tree: exp.Expr) -> Iterator[Read]:
    """The queries with calls that are read by FROM clauses alone, outer ones first."""
    for select in list(tree.find_all(exp.Select)):
        for reader in readers_of(select):
            query = derived(reader.item)
            if query is not None and asks(query):
                yield Read(query, (reader,))
    for entry in list(tree.find_all(exp.CTE)):
        if isinstance(entry.this, exp.Query) and asks(entry) and not _is_fenced(entry):
            readers = _readers_of_entry(entry, tree)
            if readers is not None:
                yield Read(entry.this, readers, tuple(entry.alias_column_names))


def readers_of(select: exp.Select) -> list[Reader]:
    """The tables of a FROM clause, in order."""
    clause = select.args.get("from_")
    items = [] if clause is None else [clause.this]
    items += [join.this for join in select.args.get("joins") or ()]
    return [Reader(select, item, at) for at, item in enumerate(items)]


def asks(node: exp.Expr) -> bool:
    """Whether a part of a statement has calls, or reads a WITH entry that does."""
    entries = (_entry_of(table) for table in node.find_all(exp.Table) if not table.db)
    return has_call(node) or any(entry is not None and asks(entry.this) for entry in entries)


def reads_calls(select: exp.Select) -> bool:
    """Whether a table of a FROM clause has columns that may be answers."""
    return any(asks(reader.item) for reader in readers_of(select))


def references(entry: exp.CTE, tree: exp.Expr) -> list[exp.Table]:
    """The places that name a WITH entry."""
    name = entry.alias.lower()
    return [
        table
        for table in tree.find_all(exp.Table)
        if not table.db and table.name.lower() == name and _entry_of(table) is entry
    ]


def owns(reader: Reader, column: exp.Column, names: list[str], sources: Sources) -> bool:
    """Whether a column of a SELECT is one of a reader's, whose columns have these names."""
    alias, name = reader.item.alias_or_name.lower(), column.name.lower()
    if names.count(name) != 1 or column.args.get("db"):
        return False
    if alias:
        found = sources.resolve(column)
        return found is not None and found[0].lower() == alias
    others = (known.lower() for columns in sources.columns.values() for known in columns)
    return not column.table and name not in others


def derived(item: exp.Expr) -> exp.Query | None:
    """The query of a derived table; None for any other table."""
    if not isinstance(item, exp.Subquery) or any(item.args.get(key) for key in _MODIFIERS):
        return None
    return item.this if isinstance(item.this, exp.Query) else None


def _is_fenced(entry: exp.CTE) -> bool:
    clause = entry.parent
    return bool(entry.args.get("materialized")) or bool(clause and clause.args.get("recursive"))


def _readers_of_entry(entry: exp.CTE, tree: exp.Expr) -> tuple[Reader, ...] | None:
    """All readers of a WITH entry; None if something else reads it."""
    readers: list[Reader] = []
    for table in references(entry, tree):
        select = table.find_ancestor(exp.Select)
        found = [one for one in readers_of(select) if one.item is table] if select else []
        if not found or any(table.args.get(key) for key in _MODIFIERS):
            return None
        readers += found
    return tuple(readers)


def _entry_of(table: exp.Table) -> exp.CTE | None:
    name = table.name.lower()
    entries = reversed(visible_ctes(table))
    return next((entry for entry in entries if entry.alias.lower() == name), None)
