"""The facts that rules need about a statement: its columns and types, and who reads a query with
calls.

Queries are read by FROM clauses: derived tables and WITH entries. Only what is read as it stands
counts: not through PIVOT or a sample, and no MATERIALIZED entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import (
    FIELD_NAME,
    Call,
    calls_directly,
    calls_in,
    field_name,
    has_call,
)
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.normalize import normalize, restore_columns
from relquery.sql.binder.sources import (
    Context,
    Kinds,
    Sources,
    entry_of,
    is_recursive,
    leaves,
    read_sources,
    visible_entries,
)
from relquery.sql.binder.stand_ins import describe
from relquery.sql.host.database import Database
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import (
    Column,
    Entry,
    Expression,
    Join,
    Node,
    Query,
    Select,
    Source,
    Star,
)

T = TypeVar("T")
Place = Callable[[Column], int | None]
"""The place of a column in a query; None for a column of anything else."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A look-up in DuckDB, with stand-ins for calls. None means that it does not say: the part
    depends on a row of an outer query, or has a form that only DuckDB understands."""

    database: Database
    functions: FunctionCatalog

    def sources(
        self, select: Select, place: Node | None = None, around: Source | None = None
    ) -> Sources | None:
        """The tables of a FROM clause, read at `place` if it is not part of the statement. around:
        tables of an outer query whose rows it may depend on."""
        context = Context.of(place or select)
        return _or_none(lambda: read_sources(self.database, select, context, around))

    def described(self, query: Query, place: Node | None = None) -> list[tuple[str, str]]:
        """(name, type) of the columns of a query. Raises QueryError where others give None."""
        alone = query.copy()
        alone.entries = ()
        return describe(Context.of(place or query).around(alone), self.database)

    def columns(self, query: Query, place: Node | None = None) -> list[tuple[str, str]] | None:
        """(name, type) of the columns of a query."""
        return _or_none(lambda: self.described(query, place))

    def normal(
        self, select: Select, sources: Sources | None = None
    ) -> tuple[Select, Sources] | None:
        """A normalized copy of a SELECT, in which no name stands for an item of its list, and the
        tables of its FROM clause; sources: these, if they are known."""

        def ask() -> tuple[Select, Sources]:
            known = sources or read_sources(self.database, select, Context.of(select))
            return normalize(select, known, self.functions), known

        return _or_none(ask)

    def items(self, select: Select, sources: Sources | None = None) -> list[Expression] | None:
        """Copies of the select list, with the columns that each star stands for; see normal."""
        if not any(isinstance(item, tree.Star) for item in select.items):
            return [item.copy() for item in select.items]
        normal = self.normal(select, sources)
        return None if normal is None else normal[0].items

    def kinds(self, select: Select) -> Kinds:
        """Types of expressions over the FROM clause of a SELECT."""
        return Kinds(self.database, Context.of(select), select)

    def seen(self, query: Query) -> list[tuple[str, str]] | None:
        """The same, where a query of a FROM clause may depend on the tables on its left."""
        item = query.ancestor(Source)
        columns = self.columns(query)
        if columns is None and isinstance(item, tree.Derived) and item.query is query:
            alone = build.derived(query.copy(), ours.LATERAL)
            tables = build.joined([*(item_copy.copy() for item_copy in left_of(item)), alone])
            star = Star(relation_name=ours.LATERAL)
            columns = self.columns(build.select([star], tables), item)
        return columns

    def stands_alone(self, query: Query) -> bool:
        """Whether a query is independent of the rows of an outer query."""
        return self.columns(query) is not None


def _or_none(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except QueryError:
        return None


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
        columns = lookup.seen(self.query)
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
        is_named = all(leaf.name for leaf in leaves(reader.select.source))

        def place(column: Column) -> int | None:
            name = column.name.lower()
            if alias:
                is_open = is_named and len(column.names) == 1  # a name that USING may merge
                merged = sources.merged(column.name) if is_open else None
                source = sources.resolve(merged if isinstance(merged, Column) else column)
                is_own = source is not None and source[0].lower() == alias
            else:
                is_own = len(column.names) == 1 and name not in others
            return names.index(name) if is_own and names.count(name) == 1 else None

        return place


def reads_in(statement: Query) -> Iterator[Read]:
    """The queries with calls that are read by FROM clauses alone, each after those that read it."""
    stack: list[Node] = [statement]
    while stack:
        node = stack.pop()
        stack.extend(node.children())  # the last WITH entry goes before those that it may read
        if isinstance(node, Select):
            for item in leaves(node.source):
                query = derived(item)
                if query is not None and asks(query):
                    yield Read(query, (Reader(node, item),))
        if isinstance(node, Entry) and node.place == "map" and asks(node):
            is_open = not (is_recursive(node) or node.is_materialized)
            if is_open and (readers := _readers_of(node, statement)) is not None:
                yield Read(node.query, readers, node)


def _readers_of(entry: Entry, statement: Query) -> tuple[Reader, ...] | None:
    """All readers of rows of a WITH entry; None if something else reads it."""
    readers: list[Reader] = []
    for table in statement.find_all(tree.Table):
        if entry_of(table) is entry:
            select = table.ancestor(Select)
            tables = () if select is None or table.sample else leaves(select.source)
            if select is None or all(table_ is not table for table_ in tables):
                return None
            readers.append(Reader(select, table))
    return tuple(readers)


def name_subqueries(statement: Query, lookup: Lookup) -> bool:
    """Write the names that DuckDB gives to joined subqueries without one, so that their columns can
    be told from those of the other tables."""
    for select in statement.find_all(Select):
        joined = leaves(select.source) if isinstance(select.source, Join) else ()
        unnamed = [side for side in joined if isinstance(side, tree.Derived) and not side.alias]
        for number, item in enumerate(unnamed, 1):
            item.alias = f"unnamed_subquery{number if number > 1 else ''}"
        if unnamed:
            return True
    return False


def asks(node: Node) -> bool:
    """Whether a part of a statement has calls, or reads a WITH entry that does."""
    entries = map(entry_of, node.find_all(tree.Table))
    return has_call(node) or any(entry is not None and asks(entry.query) for entry in entries)


def derived(item: Source) -> Query | None:
    """The query of a derived table; None for any other table."""
    return item.query if isinstance(item, tree.Derived) and item.sample is None else None


def joins_around(source: Source) -> Iterator[tuple[Source, Join]]:
    """The joins around a table or a join, from the inside out, each with its side that has it."""
    while isinstance(join := source.parent, Join):
        yield source, join
        source = join


def left_of(item: Source) -> list[Source]:
    """The tables on the left of one, which a LATERAL subquery may depend on."""
    return [join.left for side, join in joins_around(item) if side is join.right][::-1]


def adds_rows(join: Join, side: Source) -> bool:
    """Whether a join adds rows without a match on one of its sides, or joins by position."""
    if join.method == "POSITIONAL" or join.kind == "FULL":
        return True
    if side.place == "left":
        return join.kind == "RIGHT"
    return join.kind in ("LEFT", "SEMI", "ANTI") or join.method == "ASOF"


def is_inner(join: Join) -> bool:
    """Whether a join with a condition is an inner one."""
    return join.kind == "INNER" and join.method in ("REGULAR", "CROSS", "NATURAL")


def is_by_chance(node: Node, lookup: Lookup) -> bool:
    """Whether a part of a query may give other rows when it is computed again."""
    if isinstance(node, Query) and node.limit is not None and node.order is None:
        return not (isinstance(node, Select) and calls_directly(node))
    return lookup.functions.calls_volatile(node) or "sample" in node.args


def carried(query: Query, before: Node, after: Node, lookup: Lookup) -> Query | None:
    """A query that has the rows at one place of a statement that another has elsewhere; None if
    there is none. It brings the WITH entries along that are not seen there.
    """
    if any(is_by_chance(part, lookup) for part in query.walk()) or has_call(query):
        return None
    known = {entry.name.lower(): entry for entry in visible_entries(before)}
    there = {entry.name.lower(): entry for entry in visible_entries(after)}
    named = {table.table.lower() for table in query.find_all(tree.Table) if len(table.path) == 1}
    if all(known.get(name) is there.get(name) for name in named):
        return query
    whole = Context.of(before).around(query)
    own = {entry.name.lower() for entry in whole.entries}
    return None if has_call(whole) or (named - own) & there.keys() else whole


def parted(conditions: Iterable[Expression]) -> tuple[list[Expression], list[Expression]]:
    """Conditions without and with calls."""
    plain: list[Expression] = []
    asking: list[Expression] = []
    for condition in conditions:
        (asking if has_call(condition) else plain).append(condition)
    return plain, asking


def condition_of(parts: Iterable[Expression]) -> Expression | None:
    """Conditions joined with AND; None for none."""
    listed = list(parts)
    return build.all_of(listed) if listed else None


def restored(condition: Expression, sources: Sources) -> Expression:
    """A copy of a condition in which every column is one, also that of `title.upper()`."""
    holder = build.select((), where=condition.copy())
    restore_columns(holder, sources)
    assert holder.where is not None
    return holder.where


def note_field_names(node: Node) -> None:
    """Note what the fields of calls are called before they are rewritten. Columns keep theirs."""
    for call in calls_in(node):
        for argument in call.fields:
            if not isinstance(argument, Call | Column | tree.Star):
                argument.meta.setdefault(FIELD_NAME, field_name(argument))


@dataclass(frozen=True, slots=True)
class Computed:
    """Columns of a subquery for expressions that a query around it reads, each once.

    name: of a column, by its number. values: the expressions, by a text that is the same for equal
    ones.
    """

    name: Callable[[int], str]
    values: dict[str, Expression] = field(default_factory=dict)

    def column(self, value: Expression, key: str) -> Column:
        """The column for an expression."""
        self.values.setdefault(key, value)
        return build.column(self.name(list(self.values).index(key)))

    def items(self) -> list[Expression]:
        """The select list of the subquery."""
        return [value.named(self.name(index)) for index, value in enumerate(self.values.values())]
