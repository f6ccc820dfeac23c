"""Rows that no join reads are dropped before their calls are made.

SELECT a FROM (SELECT k, LLM('...', text) AS a FROM t) AS c JOIN g ON c.k = g.k WHERE g.name = 'x'
=> SELECT a FROM (SELECT k, LLM('...', text) AS a FROM t
                  WHERE k IN (SELECT g.k FROM g WHERE g.name = 'x')) AS c JOIN g ...

A WITH entry with several readers keeps what any of them needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relquery.sql import names as ours
from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import has_lambda, own_nodes
from relquery.sql.binder.sources import Sources, leaves, with_both_sides
from relquery.sql.optimizer.into_query import add_condition, reads_answers
from relquery.sql.optimizer.joins import joins_around
from relquery.sql.optimizer.lookup import Lookup
from relquery.sql.optimizer.reads import Place, Read, Reader, asks, carried, reads_in, restored
from relquery.sql.optimizer.safe import MATCHES
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    Comparison,
    Expression,
    Join,
    Node,
    Query,
    Source,
    Subquery,
)

_DONE = "reduced"
"""Note on a query that has the condition, or cannot have one."""


def reduce_by_joins(tree: Query, lookup: Lookup) -> Query | None:
    """The rule of this module; see `rules`."""
    for read in reads_in(tree):
        if not read.readers or _DONE in read.query.meta:
            continue
        read.query.meta[_DONE] = True
        per_reader = [_conditions(read, reader, lookup) for reader in read.readers]
        if all(per_reader):
            needed = build.any_of(build.all_of(found) for found in per_reader)
            add_condition(read.query, needed, lookup)
            return tree
    return None


def _conditions(read: Read, reader: Reader, lookup: Lookup) -> list[Expression]:
    """What the rows of a query must meet for one of its readers."""
    sources = lookup.sources(with_both_sides(reader.select), reader.select)
    place = None if sources is None else read.places(reader, lookup, sources)
    columns = lookup.columns(read.query)
    if sources is None or place is None or columns is None or reader.select.sample is not None:
        return []
    joined = _Joined.of(reader, sources, place, lookup)
    found: dict[str, Expression] = {}
    for at, value in () if joined is None else joined.matches():
        assert joined is not None
        values = carried(joined.query(value), reader.select, read.query, lookup)
        described = None if values is None else lookup.columns(values, reader.select)
        if values is None or described is None or described[0][1] != columns[at][1]:
            continue
        match = Subquery(subquery_type="ANY", subquery=Node(node=values))
        match.set("comparison_type", build.EQUAL)
        match.compared = build.column(ours.column(at))
        match.meta[MATCHES] = True
        if not reads_answers(read.query, match):
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

    @classmethod
    def of(cls, reader: Reader, sources: Sources, place: Place, lookup: Lookup) -> _Joined | None:
        """Those without which a row of the query has no part in the reader's rows. None where it
        matters which other rows the query has."""
        found = cls(sources, place, lookup)
        written = build.conjuncts(reader.select.where)
        for side, join in joins_around(reader.item):
            if join.method not in ("REGULAR", "CROSS", "NATURAL"):
                return None
            is_left = side.place == "left"
            is_kept = {"LEFT": is_left, "RIGHT": not is_left, "ANTI": is_left, "FULL": True}
            other = join.right if is_left else join.left
            if is_kept.get(join.kind, False) or asks(other):
                continue  # the row is there without the other table
            found.others.append(other)
            written += build.conjuncts(join.condition)
            found._take_using(join, side, other)
        for one in written:
            found._take(restored(one, sources))
        found._connect()
        return found

    def matches(self) -> Iterator[tuple[int, Expression]]:
        """Columns of the query with what they are equal to in the other tables."""
        names = self._names()
        for at, value in self.equal:
            read = self._read(value)
            if read and read <= names:
                yield at, value

    def query(self, value: Expression) -> Query:
        """The values of an expression over the other tables."""
        names = self._names()
        where = [one.copy() for one in self.conditions if (self._read(one) or {""}) <= names]
        source = build.joined([other.copy() for other in self.others])
        return build.select([value.copy()], source, build.all_of(where) if where else None)

    def _names(self) -> set[str]:
        return {one.name.lower() for other in self.others for one in leaves(other)}

    def _take_using(self, join: Join, side: Source, other: Source) -> None:
        names = list(join.using)
        if join.method == "NATURAL":
            of_side, of_other = (
                {name.lower() for leaf in leaves(one) for name in self._columns_of(leaf)}
                for one in (side, other)
            )
            names = sorted(of_side & of_other)
        for name in names:
            mine, theirs = (self._having(name, one) for one in (side, other))
            if len(theirs) != 1:
                continue
            self.using[name.lower()] = (theirs[0], name)
            at = self.place(build.column(name, *mine[:1])) if len(mine) == 1 else None
            if at is not None:
                self.equal.append((at, build.column(name, theirs[0])))

    def _columns_of(self, leaf: Source) -> list[str]:
        return self.sources.columns.get(leaf.name, [])

    def _having(self, name: str, source: Source) -> list[str]:
        """The tables of a source that have a column."""
        known = (one for one in leaves(source) if one.name)
        return [one.name for one in known if name.lower() in map(str.lower, self._columns_of(one))]

    def _take(self, condition: Expression) -> None:
        functions = self.lookup.functions
        if has_call(condition) or functions.has_query(condition) or has_lambda(condition):
            return
        if functions.is_volatile(condition):
            return
        if isinstance(condition, Comparison) and condition.kind == build.EQUAL:
            for one, other in (
                (condition.left, condition.right),
                (condition.right, condition.left),
            ):
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

    def _read(self, node: Expression) -> set[str]:
        return {one.names[0].lower() for one in own_nodes(node) if isinstance(one, Column)}

    def _connect(self) -> None:
        """Leave the tables that conditions connect with the query."""
        reached = {name for _, value in self.equal for name in self._read(value)}
        grows = True
        while grows:
            kept = [
                other
                for other in self.others
                if any(one.name.lower() in reached for one in leaves(other))
            ]
            names = {one.name.lower() for other in kept for one in leaves(other)}
            more = {
                name
                for one in self.conditions
                if (read := self._read(one)) & names
                for name in read
            }
            grows = not more <= names | reached
            reached |= names | more
        self.others = kept
