"""Rows that no join reads are dropped before their calls are made.

SELECT a FROM (SELECT k, LLM('...', text) AS a FROM t) AS c JOIN g ON c.k = g.k WHERE g.name = 'x'
=> SELECT a FROM (SELECT k, LLM('...', text) AS a FROM t
                  WHERE k IN (SELECT g.k FROM g WHERE g.name = 'x')) AS c JOIN g ...

A WITH entry with several readers keeps what any of them needs. What IN looks for is read as a side
of a SEMI JOIN is:

SELECT id FROM g WHERE name = 'x' AND k IN (SELECT k FROM t WHERE AI_FILTER('...', text))
=> ... k IN (SELECT k FROM t WHERE AI_FILTER('...', text)
                               AND k IN (SELECT g.k FROM g WHERE g.name = 'x'))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from relquery.sql import names as ours
from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import has_lambda
from relquery.sql.binder.sources import Sources, leaves, with_both_sides
from relquery.sql.optimizer.push_conditions import MATCHES, conditions_of, leave_needed, met_by
from relquery.sql.optimizer.reads import (
    Lookup,
    Place,
    Read,
    Reader,
    adds_rows,
    asks,
    carried,
    condition_of,
    is_inner,
    joins_around,
    reads_in,
    restored,
)
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Column,
    ComparisonExpression,
    Expression,
    Join,
    Node,
    Query,
    Select,
    Source,
    Subquery,
)

_DONE = "reduced"
"""Note on a query that has the condition, or cannot have one."""


def reduce_by_joins(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`."""
    for read in reads_in(statement):
        if read.readers and _DONE not in read.query.meta:
            read.query.meta[_DONE] = True
            matches = (
                _matches(read, reader, lookup) or conditions_of(read, reader, lookup)
                for reader in read.readers
            )
            if leave_needed(read.query, matches, lookup):
                return True
    for select in statement.find_all(Select):
        for condition in build.conjuncts(select.where):
            is_open = (
                isinstance(condition, Subquery)
                and _is_in(condition)
                and _DONE not in condition.query.meta
            )
            if isinstance(condition, Subquery) and is_open and asks(condition.query):
                condition.query.meta[_DONE] = True
                if leave_needed(condition.query, [_needed(condition, select, lookup)], lookup):
                    return True
    return False


def _matches(read: Read, reader: Reader, lookup: Lookup) -> list[Expression]:
    """What the rows of a query must match to be read by one of its readers."""
    sources = lookup.sources(with_both_sides(reader.select), reader.select)
    place = None if sources is None else read.places(reader, lookup, sources)
    if sources is None or place is None or reader.select.sample is not None:
        return []
    joined = _Joined(sources, place, lookup)
    return joined.matches(read.query, reader.select) if joined.take(reader) else []


def _needed(subquery: Subquery, outer: Select, lookup: Lookup) -> list[Expression]:
    """What the rows of `value IN (query)`, a condition of WHERE, must match to be read: what is
    compared, in the rows that the other conditions leave."""
    sources = lookup.sources(outer)
    if sources is None or outer.sample is not None or subquery.compared is None:
        return []
    joined = _Joined(sources, lambda column: None, lookup)
    joined.take_rows(outer)
    joined.take_equal(0, subquery.compared.copy())
    return joined.matches(subquery.query, outer)


def _is_in(subquery: Subquery) -> bool:
    return subquery.kind == "ANY" and subquery.args.get("comparison_type") == build.EQUAL


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
        null = set[str]()
        for side, join in joins_around(reader.item):
            if join.method not in ("REGULAR", "CROSS", "NATURAL"):
                return False
            is_left = side.place == "left"
            is_kept = {"LEFT": is_left, "RIGHT": not is_left, "ANTI": is_left, "FULL": True}
            other = join.right if is_left else join.left
            if not is_kept.get(join.kind, False):
                self.others += [] if asks(other) else [other]
                for condition in met_by(join):
                    self._take(restored(condition, self.sources), null)
                self._take_using(join, side, other)
            if adds_rows(join, side):  # which have NULL where a row of the query is dropped
                null = null | _names([side])
        for condition in met_by(reader.select):
            self._take(restored(condition, self.sources), null)
        return True

    def take_rows(self, select: Select) -> None:
        """Take the tables of a SELECT and the conditions that leave its rows."""
        for condition in [*build.conjuncts(select.where), *self._take_side(select.source)]:
            self._take(restored(condition, self.sources), frozenset())

    def take_equal(self, at: int, value: Expression) -> None:
        """Take what a column of the query is equal to."""
        if self._qualify(value):
            self.equal.append((at, value))

    def matches(self, query: Query, before: Select) -> list[Expression]:
        """What the rows of a query must match. before: the SELECT that has the other tables."""
        columns, connected = self.lookup.columns(query), self._connected()
        equal = dict[str, Expression]()
        for place, value in self.equal:
            if columns is None or not _tables(value) <= _names(connected):
                continue
            values, kind = self._over(connected, value, before, query)
            if values is not None and kind == columns[place][1]:
                match = Subquery(subquery_type="ANY", subquery=Node(node=values))
                match.set("comparison_type", build.EQUAL)
                match.compared = build.column(ours.column(place))
                match.meta[MATCHES] = True
                equal[match.key] = match
        return list(equal.values())

    def _over(
        self, tables: list[Source], value: Expression, before: Select, after: Query
    ) -> tuple[Query | None, str]:
        """The values of an expression over some of the tables, and their type. None if they cannot
        be read at another place."""
        names = _names(tables)
        where = [condition.copy() for condition in self.conditions if _tables(condition) <= names]
        source = build.joined([other.copy() for other in tables])
        values = build.select([value.copy()], source, condition_of(where))
        moved = carried(values, before, after, self.lookup)
        described = None if moved is None else self.lookup.columns(moved, before)
        return (moved, described[0][1]) if described else (None, "")

    def _take_side(self, source: Source | None) -> list[Expression]:
        """Take what asks nothing of a FROM clause. Returns the conditions between its parts."""
        if source is None or not asks(source):
            self.others += [] if source is None else [source]
            return []
        if not isinstance(source, Join) or source.method not in ("REGULAR", "CROSS"):
            return []
        conditions = build.conjuncts(source.condition) if is_inner(source) else []
        if is_inner(source) or source.kind in ("LEFT", "SEMI", "ANTI"):
            conditions += self._take_side(source.left)
        if is_inner(source) or source.kind == "RIGHT":
            conditions += self._take_side(source.right)
        return conditions

    def _take_using(self, join: Join, side: Source, other: Source) -> None:
        mine, theirs = self._tables_by_column(side), self._tables_by_column(other)
        is_natural = join.method == "NATURAL"
        for name in sorted(mine.keys() & theirs.keys()) if is_natural else join.using:
            tables, others = mine[name.lower()], theirs[name.lower()]
            if len(others) == 1:
                if name.lower() not in self.using or not asks(other):
                    self.using[name.lower()] = others[0], name
                place = self.place(build.column(name, *tables)) if len(tables) == 1 else None
                if place is not None:
                    self.equal.append((place, build.column(name, *others)))

    def _tables_by_column(self, source: Source) -> defaultdict[str, list[str]]:
        tables: defaultdict[str, list[str]] = defaultdict(list)
        for leaf in leaves(source):
            for name in self.sources.columns.get(leaf.name, ()):
                tables[name.lower()].append(leaf.name)
        return tables

    def _take(self, condition: Expression, may_be_null: Set[str]) -> None:
        """Take a condition, unless it is about tables without whose rows it may not hold."""
        functions = self.lookup.functions
        is_open = has_call(condition) or functions.has_query(condition)
        if is_open or has_lambda(condition) or functions.is_volatile(condition):
            return
        if isinstance(condition, ComparisonExpression) and condition.kind == build.EQUAL:
            sides = condition.left, condition.right
            for side, other in (sides, sides[::-1]):
                place = self.place(side) if isinstance(side, Column) else None
                if place is not None:
                    self.take_equal(place, other)
        if self._qualify(condition) and _tables(condition).isdisjoint(may_be_null):
            self.conditions.append(condition)

    def _qualify(self, node: Expression) -> bool:
        """Write the columns of a condition with their tables. Returns whether it reads others
        alone."""
        qualified = []
        for column in node.find_all(Column):
            known = self.sources.resolve(column)
            if known is None and len(column.names) == 1:
                known = self.using.get(column.name.lower())
            elif self.place(column) is not None:
                return False
            if known is None:
                return False
            qualified.append((column, known))
        for column, known in qualified:
            column.names = list(known)
        return bool(qualified)

    def _connected(self) -> list[Source]:
        """The tables that conditions connect with the query."""
        taken = _names(self.others)
        reached = {name for _, value in self.equal for name in _tables(value) & taken}
        groups = [_names([other]) for other in self.others]
        groups += [_tables(condition) & taken for condition in self.conditions]
        for _ in groups:  # each time one more can be reached
            reached = reached.union(*(names for names in groups if names & reached))
        return [other for other in self.others if _names([other]) & reached]


def _names(sources: Iterable[Source]) -> set[str]:
    return {leaf.name.lower() for source in sources for leaf in leaves(source)}


def _tables(node: Expression) -> set[str]:
    return {column.names[0].lower() for column in node.find_all(Column)}
