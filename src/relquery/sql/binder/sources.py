"""The tables of one FROM clause: their columns, the columns of a star, and what a name means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import FIELD_NAME, readable
from relquery.sql.binder.scopes import Context
from relquery.sql.binder.stand_ins import stubbed
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import (
    Column,
    Empty,
    Expression,
    Join,
    Query,
    Select,
    Source,
    Star,
)


@dataclass(frozen=True, slots=True)
class Sources:
    """columns: of every named source, by its alias as written. names: of `SELECT *`, in order."""

    columns: dict[str, list[str]]
    names: list[str]

    def resolve(self, column: Column) -> tuple[str, str] | None:
        """(source, name) as spelled in the database; None if only DuckDB can resolve it.

        DuckDB has the last word on struct fields, USING columns and ambiguous names.
        """
        if len(column.names) > 2:
            return None
        wanted, name = column.table.lower(), column.name.lower()
        found = [
            (source, known)
            for source, names in self.columns.items()
            if wanted in ("", source.lower())
            for known in names
            if known.lower() == name
        ]
        return found[0] if len(found) == 1 else None

    def has(self, name: str) -> bool:
        """Whether an unqualified name is a column of the FROM clause."""
        name = name.lower()
        everywhere = [self.names, *self.columns.values()]
        return any(name == known.lower() for names in everywhere for known in names)

    def has_column(self, column: Column) -> bool:
        """Whether a name, with or without its table, is a column of the FROM clause."""
        if not column.table:
            return self.has(column.name)
        return any(
            alias.lower() == column.table.lower() and column.name.lower() in map(str.lower, columns)
            for alias, columns in self.columns.items()
        )


def leaves(source: Source | None) -> Iterator[Source]:
    """The tables of a FROM clause, in order."""
    if isinstance(source, Join):
        yield from leaves(source.left)
        yield from leaves(source.right)
    elif source is not None and not isinstance(source, Empty):
        yield source


def joins_in(source: Source | None) -> Iterator[Join]:
    """The joins of a FROM clause, inner ones first."""
    if isinstance(source, Join):
        yield from joins_in(source.left)
        yield from joins_in(source.right)
        yield source


def with_both_sides(select: Select) -> Select:
    """A FROM clause with what the conditions of SEMI and ANTI joins see: both of their tables."""
    probe = from_only(select)
    for join in joins_in(probe.source):
        if join.kind in ("SEMI", "ANTI"):
            join.kind = "INNER"
    return probe


def from_only(select: Select, items: Sequence[Expression] = ()) -> Select:
    """Some items over a copy of a FROM clause."""
    source = select.source
    made = build.select([item.copy() for item in items], None if source is None else source.copy())
    if select.sample is not None:
        made.sample = select.sample.copy()
    return made


def describe(query: Query, database: Database) -> list[tuple[str, str]]:
    """(name, type) of the columns of a query, which may have calls. Raises QueryError."""
    return database.columns(parser().sql(stubbed(query)))


def read_sources(database: Database, select: Select, context: Context) -> Sources:
    """Ask DuckDB for the columns of a FROM clause. Raises QueryError if DuckDB rejects it."""
    aliases = list(dict.fromkeys(one.name for one in leaves(select.source) if one.name))
    if select.source is None or isinstance(select.source, Empty):
        return Sources({}, [])
    try:
        return _at_once(aliases, select, context, database)
    except QueryError:
        pass
    columns = {}
    for alias in aliases:
        try:
            found = _names(Star(relation_name=alias), select, context, database)
        except QueryError:  # its name does not qualify its columns
            found = []
        columns[alias] = found
    return Sources(columns, _names(build.star(), select, context, database))


def _at_once(aliases: list[str], select: Select, context: Context, database: Database) -> Sources:
    """All columns by one query, with a mark between those of each source."""
    items: list[Expression] = []
    for star in [*(Star(relation_name=alias) for alias in aliases), build.star()]:
        items += [star, build.null().named(ours.NOTHING)]
    parts: list[list[str]] = [[]]
    for name, _ in describe(context.around(from_only(select, items)), database):
        if name == ours.NOTHING:
            parts.append([])
        else:
            parts[-1].append(name)
    return Sources(dict(zip(aliases, parts, strict=False)), parts[len(aliases)])


def _names(item: Expression, select: Select, context: Context, database: Database) -> list[str]:
    probe = context.around(from_only(select, [item]))
    return [name for name, _ in describe(probe, database)]


def star_columns(
    star: Star,
    sources: Sources,
    database: Database,
    select: Select,
    context: Context,
    chosen: Expression | None = None,
) -> list[Expression]:
    """The columns of a star: references that name exactly one source each, if possible.

    chosen: what takes some of them, such as `* LIKE 'k%'`.
    Raises UnsupportedQueryError if names alone do not identify the columns.
    """
    plain = (chosen or star).copy()
    plain.set("replace_list", None)  # the same names, and no calls
    plain.set("rename_list", None)
    names = _names(plain, select, context, database)
    wanted = star.table.lower()
    candidates = [
        (source, name)
        for source, known in sources.columns.items()
        if wanted in ("", source.lower())
        for name in known
    ]
    columns: list[Expression]
    listing = [name.lower() for name in names]
    if [name.lower() for _, name in candidates] == listing:
        columns = [build.column(name, source) for source, name in candidates]
    elif len(set(listing)) == len(listing):
        columns = [_unique_reference(name, candidates, star) for name in names]
    else:
        raise UnsupportedQueryError(
            f"{readable(star)} gives columns whose names are not distinct, which a query with LLM "
            "calls does not support. Name the columns instead."
        )
    replaced = {entry.name.lower(): entry for entry in star.replaced}
    for at, name in enumerate(listing):
        if name in replaced:
            value = replaced[name].value.copy()
            assert isinstance(value, Expression)
            value.meta[FIELD_NAME] = replaced[name].name
            columns[at] = value.named(names[at])
    for renamed in star.args.get("rename_list") or ():
        old = str(renamed.args["key"].args["column"]).lower()
        new = str(renamed.args["value"])
        columns = [
            one.named(new) if name == old else one
            for one, name in zip(columns, listing, strict=True)
        ]
    return columns


def _unique_reference(name: str, candidates: list[tuple[str, str]], star: Star) -> Column:
    found = [pair for pair in candidates if pair[1].lower() == name.lower()]
    if len(found) == 1:
        return build.column(found[0][1], found[0][0])
    # If the star's prefix is not a source, it is a struct: `info.*` has `info.year`.
    table = [star.table] if star.table and not found else []
    return build.column(name, *table)


def canonical(node: Expression, sources: Sources) -> str:
    """A text that is the same for equal expressions, however their columns are written."""

    def plain(part: object) -> Expression | None:
        if not isinstance(part, Column):
            return None
        found = sources.resolve(part)
        names = list(found[::-1]) if found else list(reversed(part.names))
        return build.column(*map(str.lower, names))

    copy = node.rebuilt(plain)
    copy.args.pop("alias", None)
    return copy.key
