"""Rows that no join reads are dropped before their calls are made.

SELECT a FROM (SELECT k, LLM('...', text) AS a FROM t) AS c JOIN g ON c.k = g.k WHERE g.name = 'x'
=> SELECT a FROM (SELECT k, LLM('...', text) AS a FROM t
                  WHERE k IN (SELECT g.k FROM g WHERE g.name = 'x')) AS c JOIN g ...

What is equal to a column of a query with calls gives it its conditions:

SELECT ... FROM (SELECT k, LLM('...', text) FROM t) AS c JOIN (SELECT k, LLM('...', text) FROM u)
  AS d USING (k) WHERE k = 1
=> SELECT ... FROM (SELECT k, LLM('...', text) FROM t WHERE k = 1) AS c
           JOIN (SELECT k, LLM('...', text) FROM u WHERE k = 1) AS d USING (k)

A WITH entry with several readers keeps what any of them needs. What EXISTS and IN look for is read
as a side of a SEMI JOIN is, and a query that depends on outer rows as if it were joined with them:

SELECT id FROM g WHERE name = 'x' AND k IN (SELECT k FROM t WHERE AI_FILTER('...', text))
=> ... k IN (SELECT k FROM t WHERE AI_FILTER('...', text)
                               AND k IN (SELECT g.k FROM g WHERE g.name = 'x'))

Beside what no condition compares with it, it is read only if that has rows:

SELECT name, (SELECT max(LLM('...', text)) FROM t) FROM g WHERE name = 'x'
=> SELECT name, (SELECT max(LLM('...', text)) FROM t
                 WHERE EXISTS (SELECT 1 FROM g WHERE g.name = 'x')) FROM g WHERE name = 'x'
SELECT name FROM g WHERE LLM('...', text) IN (SELECT word FROM w)
=> SELECT name FROM g WHERE LLM('...', text) IN (SELECT word FROM w) AND EXISTS (SELECT word FROM w)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from relquery.sql import names as ours
from relquery.sql.binder.call import has_call
from relquery.sql.binder.functions import FunctionCatalog, has_lambda, own_nodes
from relquery.sql.binder.normalize import has_grouping_sets
from relquery.sql.binder.sources import Kinds, Sources, leaves, with_both_sides
from relquery.sql.optimizer.never_fails import MATCHES, never_fails
from relquery.sql.optimizer.outer_joins import rejects_null
from relquery.sql.optimizer.push_conditions import conditions_of, leave_needed, met_by
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
    Comparison,
    Expression,
    Join,
    Node,
    Query,
    Select,
    Source,
    Subquery,
    Table,
)

_OF = "of"
"""Note on a column of another FROM clause: its table and name."""
_DONE = "reduced"
"""Note on a query that has the condition, or cannot have one."""


def reduce_by_joins(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`."""
    for read in reads_in(statement):
        if read.readers and _DONE not in read.query.meta:
            read.query.meta[_DONE] = True
            matches = (
                _matches(read, one, lookup) or conditions_of(read, one, lookup)
                for one in read.readers
            )
            if leave_needed(read.query, matches, lookup):
                return True
    for subquery in statement.find_all(Subquery):
        query, outer = subquery.query, _outer_of(subquery, lookup.functions)
        if outer is None or _DONE in query.meta:
            continue
        query.meta[_DONE] = True
        if asks(query):
            if leave_needed(query, [_needed(subquery, outer, lookup)], lookup):
                return True
            continue
        is_open = has_call(subquery) and _is_in(subquery, outer) and lookup.stands_alone(query)
        if is_open and carried(query, query, outer, lookup) is query:
            build.add_where(outer, build.exists(query.copy()))
            return True
    return False


def _matches(read: Read, reader: Reader, lookup: Lookup) -> list[Expression]:
    """What the rows of a query must match to be read by one of its readers."""
    sources = lookup.sources(with_both_sides(reader.select), reader.select)
    place = None if sources is None else read.places(reader, lookup, sources)
    is_reduced = reader.item.name == ours.PAIRS
    if sources is None or place is None or reader.select.sample is not None or is_reduced:
        return []
    joined = _Joined(sources, place, lookup)
    return joined.matches(read.query, reader.select) if joined.take(reader) else []


def _needed(subquery: Subquery, outer: Select, lookup: Lookup) -> list[Expression]:
    """What the rows of a subquery must match to be read: of `value IN (query)` as a condition of
    WHERE, what is compared."""
    sources = lookup.sources(outer)
    if sources is None:
        return []
    joined = _Joined(sources, lambda column: None, lookup)
    joined.take_rows(outer)
    if subquery.compared is not None and _is_in(subquery, outer):
        joined.take_equal(0, subquery.compared.copy())
    return joined.matches(subquery.query, outer)


def _is_in(subquery: Subquery, outer: Select) -> bool:
    """Whether it is `value IN (query)` as a condition of WHERE."""
    is_equal = subquery.args.get("comparison_type") == build.EQUAL
    is_condition = any(one is subquery for one in build.conjuncts(outer.where))
    return subquery.kind == "ANY" and is_equal and is_condition


def _outer_of(subquery: Subquery, functions: FunctionCatalog) -> Select | None:
    """The SELECT without whose rows a subquery of WHERE or of the select list is not read."""
    node: Node = subquery
    while node.parent is not None and not isinstance(node.parent, Query):
        node = node.parent
    found = node.parent
    if not isinstance(found, Select) or found.sample is not None:
        return None
    is_of_rows = functions.around(subquery, found) or not functions.in_select(found)
    if not is_of_rows:  # groups may have a row for no rows
        is_of_rows = bool(found.keys) and not has_grouping_sets(found)
    is_read = is_of_rows if node.place == "select_list" else node.place == "where_clause"
    return found if is_read else None


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
        outside = self._take_outer(reader.select)
        written, null = list[tuple[Expression, set[str]]](), set[str]()
        for side, join in joins_around(reader.item):
            if join.method not in ("REGULAR", "CROSS", "NATURAL"):
                return False
            is_left = side.place == "left"
            is_kept = {"LEFT": is_left, "RIGHT": not is_left, "ANTI": is_left, "FULL": True}
            other = join.right if is_left else join.left
            if not is_kept.get(join.kind, False):
                self.others += [] if asks(other) else [other]
                written += [(one, null) for one in met_by(join)]
                self._take_using(join, side, other)
            if adds_rows(join, side):  # which have NULL where a row of the query is dropped
                null = null | _names([side])
        where = [(one, null) for one in met_by(reader.select)]
        for one, may_be_null in [*written, *where]:
            condition = restored(one, self.sources)
            if outside is not None:
                _note_tables(condition, outside, self.sources)
            self._take(condition, may_be_null)
            if isinstance(one, Subquery) and one.kind == "EXISTS":
                self._take_inner(one.query, reader.select)
        return True

    def take_rows(self, select: Select) -> None:
        """Take the tables of a SELECT and the conditions that leave its rows."""
        for one in [*build.conjuncts(select.where), *self._take_side(select.source)]:
            self._take(restored(one, self.sources))

    def take_equal(self, at: int, value: Expression) -> None:
        """Take what a column of the query is equal to."""
        if self._qualify(value):
            self.equal.append((at, value))

    def matches(self, query: Query, before: Select) -> list[Expression]:
        """What the rows of a query must match. before: the SELECT that has the other tables."""
        columns = self.lookup.columns(query)
        found, carried_over = list[Expression](), list[Expression]()
        if columns is None:
            return []
        connected, apart = self._parted()
        for at, value in self.equal:
            if not _tables(value) <= _names(connected):
                carried_over += self._on_equal(at, value, columns[at][1])
                continue
            values, kind = self._over(connected, value, before, query)
            if values is not None and kind == columns[at][1]:
                match = Subquery(subquery_type="ANY", subquery=Node(node=values))
                match.set("comparison_type", build.EQUAL)
                match.compared = build.column(ours.column(at))
                found.append(match)
        some, _ = self._over(apart, build.number(1), before, query)
        is_table = all(isinstance(one, Table) for one in apart)
        if isinstance(some, Select) and (some.where is not None or not is_table):
            found.append(build.exists(some))
        for one in found:
            one.meta[MATCHES] = True
        return list({one.key: one for one in [*found, *carried_over]}.values())

    def _on_equal(self, at: int, value: Expression, kind: str) -> list[Expression]:
        """The conditions on what a column of the query is equal to, over the column."""
        kinds = Kinds(self.lookup.database, self.sources.context, self.sources.select)
        if not isinstance(value, Column) or kinds.of(value) != kind or "VARCHAR" in kind:
            return []  # texts may be equal under a collation that the column does not have
        found = list[Expression]()
        for condition in self.conditions:
            columns = {one.key for one in condition.find_all(Column)}
            if columns == {value.key} and never_fails(condition, kinds):
                found.append(condition.copy())
                for column in list(found[-1].find_all(Column)):
                    column.names = [ours.column(at)]
        return found

    def _over(
        self, tables: list[Source], value: Expression, before: Select, after: Query
    ) -> tuple[Query | None, str]:
        """The values of an expression over some of the tables, and their type. None if they cannot
        be read at another place."""
        names = _names(tables)
        if not names:
            return None, ""
        read = ((one, _tables(one)) for one in self.conditions)
        where = [one.copy() for one, of in read if of and of <= names]
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
        found = build.conjuncts(source.condition) if is_inner(source) else []
        if is_inner(source) or source.kind in ("LEFT", "SEMI", "ANTI"):
            found += self._take_side(source.left)
        if is_inner(source) or source.kind == "RIGHT":
            found += self._take_side(source.right)
        return found

    def _take_outer(self, select: Select) -> Sources | None:
        """Take the rows that a subquery may depend on, as if it were joined with them. Returns
        their tables."""
        holder = select.parent and select.parent.parent
        outer = _outer_of(holder, self.lookup.functions) if isinstance(holder, Subquery) else None
        outside = self._apart(outer, select)
        if outer is None or outside is None:
            return None
        for one in [*build.conjuncts(outer.where), *self._take_side(outer.source)]:
            condition = restored(one, outside)
            if _note_tables(condition, outside):
                self._take(condition)
        return outside

    def _take_inner(self, query: Query, select: Select) -> None:
        """Take the rows that EXISTS looks for."""
        is_plain = isinstance(query, Select) and not self.lookup.functions.in_select(query)
        inside = self._apart(query, select) if isinstance(query, Select) and is_plain else None
        if inside is None or not isinstance(query, Select) or asks(query):
            return
        named = {item.alias.lower() for item in query.items}
        self.others += [] if query.source is None else [query.source]
        for one in build.conjuncts(query.where):
            condition = restored(one, inside)
            _note_tables(condition, inside)
            read = (
                part.names[0].lower() for part in condition.find_all(Column) if _OF not in part.meta
            )
            if named.isdisjoint(read):
                self._take(condition)

    def _apart(self, other: Select | None, select: Select) -> Sources | None:
        """The tables of another SELECT, if none is called as one of a SELECT is."""
        if other is None or _names([*leaves(other.source)]) & _names([*leaves(select.source)]):
            return None
        return self.lookup.sources(other)

    def _take_using(self, join: Join, side: Source, other: Source) -> None:
        mine, theirs = self._tables_by_column(side), self._tables_by_column(other)
        is_natural = join.method == "NATURAL"
        for name in sorted(mine.keys() & theirs.keys()) if is_natural else join.using:
            tables, others = mine[name.lower()], theirs[name.lower()]
            if len(others) == 1:
                if name.lower() not in self.using or not asks(other):
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

    def _take(self, condition: Expression, may_be_null: Set[str] = frozenset()) -> None:
        """Take a condition. may_be_null: tables without whose rows it must not hold."""
        functions = self.lookup.functions
        is_open = has_call(condition) or functions.has_query(condition)
        if is_open or has_lambda(condition) or functions.is_volatile(condition):
            return
        if isinstance(condition, Comparison) and condition.kind == build.EQUAL:
            sides = condition.left, condition.right
            for one, other in (sides, sides[::-1]):
                is_own = isinstance(one, Column) and _OF not in one.meta
                at = self.place(one) if isinstance(one, Column) and is_own else None
                if at is not None:
                    self.take_equal(at, other)
        if self._qualify(condition) and (
            rejects_null(condition) or _tables(condition).isdisjoint(may_be_null)
        ):
            self.conditions.append(condition)

    def _qualify(self, node: Expression) -> bool:
        """Write the columns of a condition with their tables. Returns whether it reads others
        alone."""
        found = []
        for column in (one for one in own_nodes(node) if isinstance(one, Column)):
            known = column.meta.get(_OF) or self.sources.resolve(column)
            if known is None and len(column.names) == 1:
                known = self.using.get(column.name.lower())
            elif _OF not in column.meta and self.place(column) is not None:
                return False
            if known is None:
                return False
            found.append((column, known))
        for column, known in found:
            column.names = list(known)
        return bool(found)

    def _parted(self) -> tuple[list[Source], list[Source]]:
        """The tables that conditions connect with the query, and the others."""
        taken = _names(self.others)
        reached = {name for _, value in self.equal for name in _tables(value) & taken}
        groups = [_names([one]) for one in self.others]
        groups += [_tables(one) & taken for one in self.conditions]
        for _ in groups:  # each time one more can be reached
            reached = reached.union(*(names for names in groups if names & reached))
        parts: tuple[list[Source], list[Source]] = ([], [])
        for one in self.others:
            parts[not _names([one]) & reached].append(one)
        return parts


def _note_tables(node: Expression, sources: Sources, inner: Sources | None = None) -> bool:
    """Note on columns of which of some tables they are, in place. Returns whether all are. inner:
    tables whose columns go first."""
    columns = [one for one in own_nodes(node) if isinstance(one, Column)]
    for column in columns:
        known = sources.resolve(column)
        if known is not None and not (inner and inner.has_column(column)):
            column.meta[_OF] = known
    return all(_OF in column.meta for column in columns)


def _names(sources: Iterable[Source]) -> set[str]:
    return {leaf.name.lower() for source in sources for leaf in leaves(source)}


def _tables(node: Expression) -> set[str]:
    return {one.names[0].lower() for one in own_nodes(node) if isinstance(one, Column)}
