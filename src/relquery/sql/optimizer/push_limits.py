"""LIMIT goes into the query whose rows it counts.

SELECT a FROM (SELECT id, LLM('...', text) AS a FROM t) ORDER BY id LIMIT 3 OFFSET 2
=> SELECT a FROM (SELECT id, LLM('...', text) AS a FROM t ORDER BY 1 LIMIT 5)
   ORDER BY id LIMIT 3 OFFSET 2

SELECT LLM(...) FROM t UNION ALL SELECT LLM(...) FROM u LIMIT 3
=> (SELECT LLM(...) FROM t LIMIT 3) UNION ALL (SELECT LLM(...) FROM u LIMIT 3) LIMIT 3

EXISTS (SELECT 1 FROM t WHERE LLM(...) = 'Yes')
=> EXISTS (SELECT 1 FROM t WHERE LLM(...) = 'Yes' LIMIT 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from relquery.sql.binder.functions import has_window, makes_rows
from relquery.sql.optimizer.reads import Lookup, Read, Reader, asks, joins_around, reads_in
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Column, Constant, Expression, Limit, Order, Query


def push_limits(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`."""
    return any(
        limit is not None and limit.put(query) for query, limit in _limits(statement, lookup)
    )


def _limits(statement: Query, lookup: Lookup) -> Iterator[tuple[Query, _Limit | None]]:
    """Queries with calls, and how many of their rows are read."""
    for read in reads_in(statement):
        yield read.query, _of_reader(read, lookup)
    for union in statement.find_all(tree.SetOperation):
        if union.kind == "UNION" and union.is_all:
            limit = _of_union(union, lookup)
            yield from ((branch, limit) for branch in union.branches if asks(branch))
    for exists in statement.find_all(tree.Subquery):
        query = exists.query
        is_open = exists.kind == "EXISTS" and query.limit is None and asks(query)
        if is_open and lookup.stands_alone(query):
            yield query, _Limit(1)


def limits_of(query: Query) -> tuple[int, int] | None:
    """(LIMIT, OFFSET) of a query; None unless it has a limit and both are plain numbers."""
    limit = query.limit
    if limit is None or limit.is_share:
        return None
    rows, skipped = number_of(limit.limit), number_of(limit.offset or build.number(0))
    return None if rows is None or skipped is None else (rows, skipped)


def number_of(value: Expression | None) -> int | None:
    """The number that a literal is; None for any other expression."""
    is_number = isinstance(value, Constant) and value.kind == "INTEGER" and value.text.isdigit()
    return int(value.text) if isinstance(value, Constant) and is_number else None


@dataclass(frozen=True, slots=True)
class _Limit:
    """most: rows that are read. order: keys of ORDER BY, with the numbers of columns; or none."""

    most: int
    order: tuple[tree.Ordered, ...] = ()

    @classmethod
    def of(cls, query: Query, place: Callable[[Expression], int | None]) -> _Limit | None:
        """That of a query, with the rows that OFFSET skips. place: of a key of ORDER BY."""
        limits = limits_of(query)
        order = [] if query.order is None else [key.copy() for key in query.order.keys]
        for key in order if limits is not None else ():
            index = place(key.value)
            if index is None:
                return None
            key.value = build.number(index + 1)
        return None if limits is None else cls(sum(limits), tuple(order))

    def put(self, query: Query) -> bool:
        """Limit the rows of a query, unless it has no more. Returns whether it changed."""
        own = query.limit
        if own is not None:
            given = number_of(own.limit)
            if self.order or own.is_share or given is None or given <= self.most:
                return False
        if self.order and query.distinct is not None and query.distinct.on:
            return False  # its ORDER BY chooses the rows
        offset = None if own is None else own.offset
        build.set_modifier(query, Limit, Limit(limit=build.number(self.most), offset=offset))
        if self.order:
            build.set_modifier(query, Order, Order(orders=[key.copy() for key in self.order]))
        return True


def _of_reader(read: Read, lookup: Lookup) -> _Limit | None:
    """How many rows of a query are read by a SELECT that gives at least one for each of them."""
    if len(read.readers) != 1:
        return None
    (reader,) = read.readers
    select = reader.select
    drops_rows = any((select.where, select.distinct, select.qualify, select.sample))
    joins = joins_around(reader.item)
    drops_rows |= any(join.kind != "LEFT" or side.place != "left" for side, join in joins)
    if drops_rows or lookup.functions.in_select(select):
        return None
    if any(has_window(item) or makes_rows(item) for item in select.items):
        return None
    return _Limit.of(select, column_of_key(read, reader, lookup))


def column_of_key(read: Read, reader: Reader, lookup: Lookup) -> Callable[[Expression], int | None]:
    """Finds keys of a reader's ORDER BY among the columns of a query."""
    items = reader.select.items
    named = {item.alias.lower(): item for item in reversed(items) if item.alias}

    def place(key: Expression) -> int | None:
        if isinstance(key, Column) and len(key.names) == 1:
            key = named.get(key.name.lower(), key)
        places = read.places(reader, lookup) if isinstance(key, Column) else None
        return places(key) if places is not None and isinstance(key, Column) else None

    return place


def _of_union(union: tree.SetOperation, lookup: Lookup) -> _Limit | None:
    names = [name.lower() for name, _ in lookup.columns(union) or ()] if union.order else []

    def place(key: Expression) -> int | None:
        if isinstance(key, Column) and len(key.names) == 1:
            name = key.name.lower()
            return names.index(name) if names.count(name) == 1 else None
        index = number_of(key)
        return None if index is None else index - 1

    return _Limit.of(union, place)
