"""Rows that no join reads are dropped before their calls are made.

SELECT a FROM (SELECT k, LLM('...', text) AS a FROM t) AS c JOIN g ON c.k = g.k WHERE g.name = 'x'
=> SELECT a FROM (SELECT k, LLM('...', text) AS a FROM t
                  WHERE k IN (SELECT g.k FROM g WHERE g.name = 'x')) AS c JOIN g ...

A WITH entry with several readers keeps what any of them needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from relquery.sql import names as ours
from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import has_lambda, own_nodes
from relquery.sql.binder.sources import Sources, leaves, with_both_sides
from relquery.sql.optimizer.never_fails import MATCHES
from relquery.sql.optimizer.push_conditions import leave_needed
from relquery.sql.optimizer.reads import (
    Lookup,
    Place,
    Read,
    Reader,
    asks,
    carried,
    condition_of,
    joins_around,
    reads_in,
    restored,
)
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Column, Comparison, Expression, Join, Node, Query, Source

_DONE = "reduced"
"""Note on a query that has the condition, or cannot have one."""


def reduce_by_joins(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`."""
    for read in reads_in(statement):
        if read.readers and _DONE not in read.query.meta:
            read.query.meta[_DONE] = True
            if leave_needed(read, (_matches(read, one, lookup) for one in read.readers), lookup):
                return True
    return False


def _matches(read: Read, reader: Reader, lookup: Lookup) -> list[Expression]:
    """What the rows of a query must match to be read by one of its readers."""
    sources = lookup.sources(with_both_sides(reader.select), reader.select)
    place = None if sources is None else read.places(reader, lookup, sources)
    columns = lookup.columns(read.query)
    if sources is None or place is None or columns is None or reader.select.sample is not None:
        return []
    joined = _Joined(sources, place, lookup)
    if not joined.take(reader):
        return []
    found: dict[str, Expression] = {}
    for at, value in joined.equal:
        query = joined.query(value)
        values = None if query is None else carried(query, reader.select, read.query, lookup)
        described = None if values is None else lookup.columns(values, reader.select)
        if described is not None and described[0][1] == columns[at][1]:
            match = tree.Subquery(subquery_type="ANY", subquery=Node(node=values))
            match.set("comparison_type", build.EQUAL)
            match.compared = build.column(ours.column(at))
            match.meta[MATCHES] = True
            found.setdefault(match.key, match)
    return list(found.values())


@dataclass(slots=True)
class _Joined:
    """The tables that are joined with a query, and the conditions of these joins.

    equal: columns of the query, by their place, with what they are equal to. using: columns that
    USING makes one, with the table that has them too.
    """

    sources: Sources
    place: Place
    lookup: Lookup
    others: list[Source] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)
    equal: list[tuple[int, Expression]] = field(default_factory=list)
    using: dict[str, tuple[str, str]] = field(default_factory=dict)

    def take(self, reader: Reader) -> bool:
        """Take those without which a row of the query has no part in the reader's rows. False where
        it matters which other rows the query has."""
        written = build.conjuncts(reader.select.where)
        for side, join in joins_around(reader.item):
            if join.method not in ("REGULAR", "CROSS", "NATURAL"):
                return False
            is_left = side.place == "left"
            is_kept = {"LEFT": is_left, "RIGHT": not is_left, "ANTI": is_left, "FULL": True}
            other = join.right if is_left else join.left
            if is_kept.get(join.kind, False) or asks(other):
                continue  # the row is there without the other table
            self.others.append(other)
            written += build.conjuncts(join.condition)
            self._take_using(join, side, other)
        for one in written:
            self._take(restored(one, self.sources))
        self._leave_connected()
        return True

    def query(self, value: Expression) -> Query | None:
        """The values of an expression over the other tables; None if it reads none."""
        names = _names(self.others)
        if not _tables(value) or not _tables(value) <= names:
            return None
        read = ((one, _tables(one)) for one in self.conditions)
        where = [one.copy() for one, tables in read if tables and tables <= names]
        source = build.joined([other.copy() for other in self.others])
        return build.select([value.copy()], source, condition_of(where))

    def _take_using(self, join: Join, side: Source, other: Source) -> None:
        mine, theirs = self._tables_by_column(side), self._tables_by_column(other)
        is_natural = join.method == "NATURAL"
        for name in sorted(mine.keys() & theirs.keys()) if is_natural else join.using:
            tables, others = mine[name.lower()], theirs[name.lower()]
            if len(others) == 1:
                self.using[name.lower()] = others[0], name
                at = self.place(build.column(name, *tables)) if len(tables) == 1 else None
                if at is not None:
                    self.equal.append((at, build.column(name, *others)))

    def _tables_by_column(self, source: Source) -> defaultdict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for leaf in leaves(source):
            for name in self.sources.columns.get(leaf.name, ()):
                found[name.lower()].append(leaf.name)
        return found

    def _take(self, condition: Expression) -> None:
        functions = self.lookup.functions
        is_open = has_call(condition) or functions.has_query(condition)
        if is_open or has_lambda(condition) or functions.is_volatile(condition):
            return
        if isinstance(condition, Comparison) and condition.kind == build.EQUAL:
            sides = condition.left, condition.right
            for one, other in (sides, sides[::-1]):
                at = self.place(one) if isinstance(one, Column) else None
                if at is not None and self._qualify(other):
                    self.equal.append((at, other))
        if self._qualify(condition):
            self.conditions.append(condition)

    def _qualify(self, node: Expression) -> bool:
        """Write the columns of a condition with their tables. Returns whether it reads others
        alone."""
        found = []
        for column in (one for one in own_nodes(node) if isinstance(one, Column)):
            known = self.sources.resolve(column)
            if known is None and len(column.names) == 1:
                known = self.using.get(column.name.lower())
            if known is None or self.place(column) is not None:
                return False
            found.append((column, known))
        for column, known in found:
            column.names = list(known)
        return bool(found)

    def _leave_connected(self) -> None:
        """Leave the tables that conditions connect with the query."""
        reached = {name for _, value in self.equal for name in _tables(value)}
        groups = [_names([one]) for one in self.others] + [_tables(one) for one in self.conditions]
        for _ in groups:  # each time one more can be reached
            reached = reached.union(*(names for names in groups if names & reached))
        self.others = [one for one in self.others if _names([one]) & reached]


def _names(sources: Iterable[Source]) -> set[str]:
    return {leaf.name.lower() for source in sources for leaf in leaves(source)}


def _tables(node: Expression) -> set[str]:
    return {one.names[0].lower() for one in own_nodes(node) if isinstance(one, Column)}
