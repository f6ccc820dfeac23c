"""The sources that a part of a statement can read: WITH entries, and the tables of a FROM clause.

DuckDB says which columns these have, what a star stands for, and of which types values are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import (
    FIELD_NAME,
    calls_directly,
    calls_in,
    has_call,
    readable,
)
from relquery.sql.binder.functions import is_variable
from relquery.sql.binder.stand_ins import describe
from relquery.sql.host.database import Database
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Column,
    Entry,
    Expression,
    Node,
    Query,
    Recursive,
    Select,
    Star,
    Table,
)


def next_select(tree: Node) -> Select | None:
    """The SELECT to run next: nothing inside or before it has calls.

    Raises UnsupportedQueryError for a call in a recursive WITH entry.
    """
    selects: list[Select] = []
    for call in calls_in(tree):
        check_not_recursive(call)
        select = call.ancestor(Select)
        assert select is not None
        if not any(select is known for known in selects):
            selects.append(select)
    if not selects:
        return None
    for select in selects:
        inner = (inner for inner in select.find_all(Select) if inner is not select)
        if not any(map(calls_directly, inner)) and not any(map(has_call, visible_entries(select))):
            return select
    raise UnsupportedQueryError(
        "An LLM call is in a WITH entry that changes rows. Run the change as a statement of its "
        "own."
    )


def visible_entries(node: Node) -> list[Entry]:
    """The WITH entries that a part of a statement can use, including its own, outermost first."""
    scopes: list[list[Entry]] = []
    inside: Node | None = None
    for ancestor in (node, *node.ancestors()):
        if isinstance(ancestor, Query) and ancestor.entries:
            place = next(
                (index for index, entry in enumerate(ancestor.entries) if entry is inside), None
            )
            scopes.append(ancestor.entries[:place])
        if isinstance(ancestor, Entry):
            inside = ancestor
    seen: dict[str, Entry] = {}
    for entries in reversed(scopes):
        for entry in entries:
            seen.pop(entry.name.lower(), None)
            seen[entry.name.lower()] = entry
    return list(seen.values())


def entry_of(table: Table) -> Entry | None:
    """The WITH entry that a table names."""
    if len(table.path) > 1:
        return None
    name = table.table.lower()
    entries = reversed(visible_entries(table))
    return next((entry for entry in entries if entry.name.lower() == name), None)


def is_recursive(entry: Entry) -> bool:
    """Whether an entry reads itself."""
    return isinstance(entry.query, Recursive)


def check_not_recursive(call: Node) -> None:
    """Raises UnsupportedQueryError for a call in a recursive WITH entry."""
    for above in call.ancestors():
        if isinstance(above, Recursive):
            raise UnsupportedQueryError(
                f"An LLM call is in the recursive WITH entry '{above.args['cte_name']}'. Run the "
                "recursion first and call LLM on its result."
            )


@dataclass(frozen=True, slots=True)
class Context:
    """The WITH entries that a query needs to run on its own."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, node: Node) -> Context:
        """What a part of a statement sees."""
        return cls(tuple(entry.copy() for entry in visible_entries(node)))

    def around(self, query: Query) -> Query:
        """A copy of a query with those of the entries that it reads."""
        alone = query.copy()
        needed = self.needed_by([alone])
        if needed:
            alone.entries = [*(entry.copy() for entry in needed), *alone.entries]
        return alone

    def needed_by(self, nodes: Iterable[Node]) -> list[Entry]:
        """The entries that some nodes read, or that such entries read."""
        wanted = {name for node in nodes for name in _named(node)}
        needed: list[Entry] = []
        for entry in reversed(self.entries):
            if entry.name.lower() in wanted:
                wanted |= _named(entry)
                needed.insert(0, entry)
        return needed


def _named(node: Node) -> set[str]:
    return {table.table.lower() for table in node.find_all(Table) if len(table.path) == 1}


# The tables of a FROM clause


def leaves(source: tree.Source | None) -> Iterator[tree.Source]:
    """The tables of a FROM clause, in order."""
    if isinstance(source, tree.Join):
        yield from leaves(source.left)
        yield from leaves(source.right)
    elif source is not None and not isinstance(source, tree.Empty):
        yield source


def joins_in(source: tree.Source | None) -> Iterator[tree.Join]:
    """The joins of a FROM clause, inner ones first."""
    if isinstance(source, tree.Join):
        yield from joins_in(source.left)
        yield from joins_in(source.right)
        yield source


def from_only(select: Select, items: Sequence[Expression] = ()) -> Select:
    """Some items over a copy of a FROM clause."""
    source = select.source
    made = build.select([item.copy() for item in items], None if source is None else source.copy())
    if select.sample is not None:
        made.sample = select.sample.copy()
    return made


def with_both_sides(select: Select) -> Select:
    """A FROM clause with what the conditions of SEMI and ANTI joins see: both of their tables."""
    probe = from_only(select)
    for join in joins_in(probe.source):
        if join.kind in ("SEMI", "ANTI"):
            join.kind = "INNER"
    return probe


@dataclass(frozen=True, slots=True)
class Sources:
    """The tables of the FROM clause of a SELECT.

    columns: of every named source, by its alias as written. names: of `SELECT *`, in order.
    context: the WITH entries that it sees. around: tables of an outer query whose rows they may
    depend on.
    """

    columns: dict[str, list[str]]
    names: list[str]
    select: Select
    context: Context
    database: Database
    around: tree.Source | None = None
    _by_name: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def resolve(self, column: Column) -> tuple[str, str] | None:
        """(source, name) as spelled in the database; None if only DuckDB can resolve it.

        DuckDB has the last word on struct fields, USING columns and ambiguous names.
        """
        if len(column.names) > 2:
            return None
        if not self._by_name:
            for pair in self.of(""):
                self._by_name.setdefault(pair[1].lower(), []).append(pair)
        table = column.table.lower()
        named = self._by_name.get(column.name.lower(), ())
        matching = [pair for pair in named if table in ("", pair[0].lower())]
        return matching[0] if len(matching) == 1 else None

    def of(self, table: str) -> list[tuple[str, str]]:
        """(source, name) of the columns of a source; of all for ""."""
        return [
            (source, name)
            for source, names in self.columns.items()
            if table.lower() in ("", source.lower())
            for name in names
        ]

    def has(self, name: str) -> bool:
        """Whether an unqualified name is a column of the FROM clause."""
        name = name.lower()
        everywhere = [self.names, *self.columns.values()]
        return any(name == known.lower() for names in everywhere for known in names)

    def gives(self, column: Column) -> bool:
        """Whether a name begins with a table or a column of the FROM clause."""
        first = column.names[0].lower()
        is_table = len(column.names) > 1 and first in map(str.lower, self.columns)
        return is_table or self.has(first)

    def left_of(self, node: Node) -> Sources:
        """What a node can read: inside of a table only the tables on its left."""
        above, left = list(node.ancestors()), dict[str, list[str]]()
        for leaf in leaves(self.select.source):
            if leaf in above:
                return replace(self, columns=left, names=[*chain(*left.values())], _by_name={})
            if not self.columns.get(leaf.name):
                break  # no name qualifies its columns
            left[leaf.name] = self.columns[leaf.name]
        return self

    def has_column(self, column: Column) -> bool:
        """Whether a name, with or without its table, is a column of the FROM clause."""
        if not column.table:
            return self.has(column.name)
        return any(name.lower() == column.name.lower() for _, name in self.of(column.table))

    def merged(self, name: str) -> Expression | None:
        """What a name means that USING or NATURAL gives to columns of several tables; None for
        another name."""
        once = [name.lower() for name in self.names].count(name.lower()) == 1
        return self._merged(name, self.select.source) if once else None

    def _merged(self, name: str, source: tree.Source | None) -> Expression | None:
        if not isinstance(source, tree.Join):
            expression = self.resolve(build.column(name, source.name if source else ""))
            return None if expression is None else build.column(expression[1], expression[0])
        sides = [self._merged(name, side) for side in (source.left, source.right)]
        given = [side for side in sides if side is not None]
        if source.kind == "FULL" and len(given) == 2:
            return build.operation(build.COALESCE, *given)
        return given[-1 if source.kind == "RIGHT" else 0] if given else None

    def _listed(self, listing: list[str], star: Star) -> list[Expression] | None:
        """The columns of these names, if a star of all tables gives each that is called so."""
        excluded = {
            (str(name.args.get("table")).lower(), str(name.args["column"]).lower())
            for name in star.args.get("qualified_exclude_list", ())
        }
        every = [
            (name, column)
            for name, column in self._columns_of(self.select.source)
            if not isinstance(column, Column)
            or (column.table.lower(), name.lower()) not in excluded
        ]
        columns = [column for name, column in every if name.lower() in listing]
        names = [name.lower() for name, _ in every if name.lower() in listing]
        return columns if names == listing and not star.table else None

    def _columns_of(self, source: tree.Source | None) -> Iterator[tuple[str, Expression]]:
        """(name, column) of a FROM clause; what USING or NATURAL merges is on its left side."""
        if not isinstance(source, tree.Join):
            table = source.name if source else ""
            names = self.columns.get(table, [])
            yield from ((name, build.column(name, table)) for name in names)
            return
        left, right = (list(self._columns_of(side)) for side in (source.left, source.right))
        merged = {name.lower() for name in source.using}
        if source.method == "NATURAL":
            merged = {name.lower() for name, _ in left} & {name.lower() for name, _ in right}
        for name, column in left:
            both = self._merged(name, source) if name.lower() in merged else None
            if both is not None:
                both.meta[FIELD_NAME] = name
            yield name, column if both is None else both
        if source.kind not in ("SEMI", "ANTI"):
            yield from (pair for pair in right if pair[0].lower() not in merged)

    def expanded(self, star: Star) -> list[Expression]:
        """The columns of a star: references that name exactly one source each, if possible.

        Raises UnsupportedQueryError if names alone do not identify the columns.
        """
        plain = star.copy()
        plain.set("replace_list", None)  # the same names, and no calls
        plain.set("rename_list", None)
        alias, plain.alias = plain.alias, ""
        names = self.named(plain)
        candidates = self.of(star.table)
        columns: list[Expression]
        listing = [name.lower() for name in names]
        if [name.lower() for _, name in candidates] == listing:
            columns = [build.column(name, source) for source, name in candidates]
        elif len(set(listing)) == len(listing):
            columns = [_unique_reference(name, candidates, star) for name in names]
        elif (listed := self._listed(listing, star)) is not None:
            columns = listed
        else:
            raise UnsupportedQueryError(
                f"{readable(star)} gives columns whose names are not distinct, which a query with "
                "LLM calls does not support. Name the columns instead."
            )
        replaced = {entry.name.lower(): entry for entry in star.replaced}
        for index, name in enumerate(listing):
            if name in replaced:
                value = replaced[name].value.copy()
                assert isinstance(value, Expression)
                value.meta[FIELD_NAME] = replaced[name].name
                columns[index] = value.named(names[index])
        for renamed in star.args.get("rename_list") or ():
            old = str(renamed.args["key"].args["column"]).lower()
            for index, name in enumerate(listing):
                if name == old:
                    columns[index] = columns[index].named(str(renamed.args["value"]))
        if alias:  # one for all, or a pattern: COLUMNS('a(.*)') AS 'b\1'
            given = self.named(plain.named(alias))
            columns = [column.named(name) for column, name in zip(columns, given, strict=True)]
        return columns

    def named(self, star: Expression) -> list[str]:
        """The names of the columns that a star stands for."""
        (names,) = _columns_of([star], self.select, self.context, self.database, self.around)
        known = {name.lower() for name in chain(*self.columns.values())}
        if self.around is not None:  # DuckDB has made them distinct: a, a_1
            for index, name in enumerate(names):
                first = name.rpartition("_")[0]
                names[index] = (
                    first if name.lower() not in known and first.lower() in known else name
                )
        return names


def read_sources(
    database: Database, select: Select, context: Context, around: tree.Source | None = None
) -> Sources:
    """Ask DuckDB for the columns of a FROM clause. Raises QueryError if DuckDB rejects it.

    around: tables of an outer query whose rows it may depend on.
    """
    if select.source is None or isinstance(select.source, tree.Empty):
        return Sources({}, [], select, context, database)
    aliases = list(dict.fromkeys(leaf.name for leaf in leaves(select.source) if leaf.name))
    stars = [*(Star(relation_name=alias) for alias in aliases), build.star()]
    try:
        listings = _columns_of(stars, select, context, database, around)
    except QueryError:
        listings = []
        for star in stars:
            try:
                listings += _columns_of([star], select, context, database, around)
            except QueryError:  # its name does not qualify its columns
                if star is stars[-1]:
                    raise
                listings.append([])
    columns = dict(zip(aliases, listings, strict=False))
    sources = Sources(columns, listings[-1], select, context, database, around)
    return sources if around is None else replace(sources, names=sources.named(stars[-1]))


def _columns_of(
    stars: Sequence[Expression],
    select: Select,
    context: Context,
    database: Database,
    around: tree.Source | None,
) -> list[list[str]]:
    """The names of the columns that each of some stars stands for, by one query; see
    read_sources."""
    if around is not None and len(stars) > 1:  # whose names it would make distinct
        each = (_columns_of([star], select, context, database, around) for star in stars)
        return [*chain(*each)]
    items = [item for star in stars for item in (star, build.null().named(ours.MARK))]
    query = from_only(select, items)
    if around is not None:
        tables = [around.copy(), build.derived(query, ours.LATERAL)]
        query = build.select([Star(relation_name=ours.LATERAL)], build.joined(tables))
    columns: list[list[str]] = [[]]
    for name, _ in describe(context.around(query), database):
        if name.lower() == ours.MARK:  # see preserve_identifier_case
            columns.append([])
        else:
            columns[-1].append(name)
    return columns[:-1]


def _unique_reference(name: str, candidates: list[tuple[str, str]], star: Star) -> Column:
    matching = [pair for pair in candidates if pair[1].lower() == name.lower()]
    if len(matching) == 1:
        return build.column(matching[0][1], matching[0][0])
    # If the star's prefix is not a source, it is a struct: `info.*` has `info.year`.
    table = [star.table] if star.table and not matching else []
    return build.column(name, *table)


def canonical(node: Expression, sources: Sources) -> str:
    """A text that is the same for equal expressions, however their columns are written."""

    def plain(part: object) -> Expression | None:
        if not isinstance(part, Column):
            return None
        expression = sources.resolve(part)
        names = list(expression[::-1]) if expression else list(reversed(part.names))
        return build.column(*map(str.lower, names))

    copy = node.rebuilt(plain)
    copy.args.pop("alias", None)
    return copy.key


def _tables_around(select: Select) -> tree.Source | None:
    """The tables of the queries around a SELECT that it may depend on; see left_of."""
    above, tables = list(select.ancestors()), dict[str, tree.Source]()
    for ancestor in above:
        if isinstance(ancestor, Select):
            on_left = takewhile(lambda leaf: leaf not in above, leaves(ancestor.source))
            tables = {leaf.name: leaf.copy() for leaf in on_left} | tables
    return build.joined(tables.values()) if tables else None


def outer_columns(query: Query, database: Database, context: Context) -> list[Column] | None:
    """The columns in a subquery that come from outside its own FROM clauses; None if unknown.

    context: the WITH entries that the subquery sees from outside.
    """
    known: dict[int, Sources] = {}

    def sources_of(select: Select) -> Sources:
        if id(select) not in known:
            inner = Context.of(select)
            own = {entry.name.lower() for entry in inner.entries}
            outer = [entry for entry in context.entries if entry.name.lower() not in own]
            beside = Context((*outer, *inner.entries))
            try:
                known[id(select)] = read_sources(database, select, beside)
            except QueryError:
                if (around := _tables_around(select)) is None:
                    raise
                known[id(select)] = read_sources(database, select, beside, around)
        return known[id(select)]

    def is_given(column: Column) -> bool:
        """Whether a column comes from a SELECT inside the query."""
        name = column.name.lower() if len(column.names) == 1 else ""
        for select in column.ancestors():
            if isinstance(select, Select):
                sources = sources_of(select)
                seen = sources.left_of(column)
                named = {item.alias.lower() for item in select.items} - {""}
                if seen.gives(column) or (seen is sources and name in named):
                    return True
            if select is query:
                return False
        return False

    try:
        return [
            column
            for column in query.find_all(Column)
            if not is_variable(column) and not is_given(column)
        ]
    except QueryError:  # a FROM clause that depends on a row of the outer query
        return None


@dataclass(slots=True)
class Kinds:
    """Types of the expressions of one SELECT, as DuckDB names them. None: DuckDB does not say."""

    database: Database
    context: Context
    select: Select
    _known: dict[str, str | None] = field(default_factory=dict)

    def of(self, node: Expression) -> str | None:
        """The type of an expression over the FROM clause."""
        key = node.key
        if key not in self._known:
            self._known[key] = self._type(from_only(self.select, [node]))
        return self._known[key]

    def named(self, kind: Node) -> str | None:
        """DuckDB's name for a type as written in the query."""
        key = kind.key
        if key not in self._known:
            self._known[key] = self._type(build.select([build.cast(build.null(), kind.copy())]))
        return self._known[key]

    def binds(self, query: Query) -> bool:
        """Whether DuckDB accepts another form of the SELECT."""
        alone = query.copy()
        alone.entries = ()
        return self._type(alone) is not None

    def _type(self, query: Query) -> str | None:
        try:
            return describe(self.context.around(query), self.database)[0][1]
        except QueryError:
            return None

    def is_value(self, value: Expression) -> bool:
        """Whether an expression that reads no table is not NULL."""
        table = self.database.fetch(f"SELECT {parser().sql(value)}")
        return bool(table.column(0).null_count == 0)
