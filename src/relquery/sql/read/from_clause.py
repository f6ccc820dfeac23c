"""The tables of one FROM clause: their columns, star expansion, and column references.

For an unknown column it suggests which columns may be meant.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlglot import exp

from relquery.errors import (
    QueryError,
    RelqueryError,
    UnknownColumnError,
    UnsupportedQueryError,
    unknown,
)
from relquery.prompt import Sampling
from relquery.sql.host.database import Database
from relquery.sql.read.scopes import Context, calls_in, context_of
from relquery.sql.read.source import FIELD_NAME, call_number, read_source, to_sql

_OPTIONS = {one.name for one in fields(Sampling)}
_FROM_CLAUSES = ("from_", "joins", "laterals", "sample")


@dataclass(frozen=True, slots=True)
class Sources:
    """columns: of every named source, by its alias as written. names: of `SELECT *`, in order."""

    columns: dict[str, list[str]]
    names: list[str]

    def resolve(self, column: exp.Column) -> tuple[str, str] | None:
        """(source, name) as spelled in the database; None if only DuckDB can resolve it.

        DuckDB has the last word on struct fields, USING columns and ambiguous names.
        """
        if column.args.get("db"):
            return None
        wanted = column.table.lower()
        found = [
            (source, name)
            for source, names in self.columns.items()
            for name in names
            if name.lower() == column.name.lower() and wanted in ("", source.lower())
        ]
        return found[0] if len(found) == 1 else None

    def has(self, name: str) -> bool:
        """Whether an unqualified name is a column of the FROM clause."""
        everywhere = [self.names, *self.columns.values()]
        return any(name.lower() == known.lower() for names in everywhere for known in names)


def from_only(select: exp.Select) -> exp.Select:
    """A copy with only the FROM clause, for the caller to extend."""
    copy = select.copy()
    for key in list(copy.args):
        if key not in _FROM_CLAUSES:
            copy.set(key, None)
    return copy


def read_sources(database: Database, select: exp.Select, context: Context) -> Sources:
    """Ask DuckDB for the columns of a FROM clause. Raises QueryError if DuckDB rejects it."""
    if select.args.get("from_") is None:
        return Sources({}, [])
    columns = {}
    for alias in _aliases(select):
        star = exp.Column(this=exp.Star(), table=exp.to_identifier(alias, quoted=True))
        columns[alias] = _names(database, select, context, star)
    return Sources(columns, _names(database, select, context, exp.Star()))


def star_columns(
    star: exp.Expr, sources: Sources, database: Database, select: exp.Select, context: Context
) -> list[exp.Expr]:
    """The columns of a star: references that name exactly one source each, if possible.

    Raises UnsupportedQueryError if names alone do not identify the columns.
    """
    names = _names(database, select, context, _without_replace(star))
    candidates = [
        (source, name)
        for source, known in sources.columns.items()
        for name in known
        if _table_of(star) in ("", source.lower())
    ]
    columns: list[exp.Expr]
    listing = [name.lower() for name in names]
    if [name.lower() for _, name in candidates] == listing:
        columns = [_reference(source, name) for source, name in candidates]
    elif len(set(listing)) == len(listing) and not _modifier(star, "rename"):
        columns = [_unique_reference(name, candidates, star) for name in names]
    else:
        raise UnsupportedQueryError(
            f"{to_sql(star)} gives columns whose names are not distinct, which a query with LLM "
            "calls does not support. Name the columns instead."
        )
    replaced = {item.alias.lower(): item for item in _modifier(star, "replace")}
    return [
        _replacement(replaced[name]) if name in replaced else column
        for name, column in zip(listing, columns, strict=True)
    ]


def is_star(node: exp.Expr) -> bool:
    """Whether an argument or select item stands for several columns."""
    if isinstance(node, exp.Column):
        return isinstance(node.this, exp.Star)
    return isinstance(node, exp.Star | exp.Columns)


def _table_of(star: exp.Expr) -> str:
    return star.table.lower() if isinstance(star, exp.Column) else ""


def _modifier(star: exp.Expr, name: str) -> list[exp.Expr]:
    inner = star.this if isinstance(star, exp.Column) else star
    return inner.args.get(name) or []


def _without_replace(star: exp.Expr) -> exp.Expr:
    """The star without REPLACE: same names, and no calls, which DuckDB does not know."""
    copy = star.copy()
    (copy.this if isinstance(copy, exp.Column) else copy).set("replace", None)
    return copy


def _replacement(item: exp.Expr) -> exp.Expr:
    expression = exp.paren(item.this)
    expression.meta[FIELD_NAME] = item.alias
    return expression


def _reference(source: str, name: str) -> exp.Column:
    return exp.column(name, table=source, quoted=True)


def _unique_reference(name: str, candidates: list[tuple[str, str]], star: exp.Expr) -> exp.Column:
    found = [pair for pair in candidates if pair[1].lower() == name.lower()]
    if len(found) == 1:
        return _reference(*found[0])
    # If the star's prefix is not a source, it is a struct: `info.*` has `info.year`.
    table = star.args["table"].copy() if isinstance(star, exp.Column) and not found else None
    return exp.column(exp.to_identifier(name, quoted=True), table=table)


def _aliases(select: exp.Select) -> list[str]:
    sources = [select.args["from_"].this]
    sources += [join.this for join in select.args.get("joins") or ()]
    sources += select.args.get("laterals") or ()
    return [source.alias_or_name for source in sources if source.alias_or_name]


def _names(database: Database, select: exp.Select, context: Context, item: exp.Expr) -> list[str]:
    probe = from_only(select)
    probe.set("expressions", [item])
    try:
        described = database.describe(context.sql(to_sql(probe)))
    except QueryError:
        # A source whose name does not qualify its columns, such as `FROM unnest(...) AS u`.
        if isinstance(item, exp.Column):
            return []
        raise
    return [name for name, _ in described]


def in_scope(error: UnknownColumnError, sql: str, database: Database) -> QueryError:
    """A better error that lists all columns in scope; the given error if they are unknown."""
    try:
        tree = read_source(sql).parse()
        for column in tree.find_all(exp.Column):
            select = column.find_ancestor(exp.Select)
            if select is None or not _is_meant(column, error.column):
                continue
            _stub_other_calls(tree, column)
            sources = read_sources(database, select, context_of(select))
            if (better := _error_at(column, sources)) is not None:
                return better
    except RelqueryError:
        pass
    return error


def _stub_other_calls(tree: exp.Expr, column: exp.Column) -> None:
    """Replace the other calls with text so that DuckDB can describe the columns."""
    for call in list(calls_in(tree)):
        if any(found is column for found in call.find_all(exp.Column)):
            continue
        text: exp.Expr = exp.Literal.string("")
        is_item = isinstance(call.parent, exp.Select)
        call.replace(exp.alias_(text, "llm(...)", quoted=True) if is_item else text)


def _is_meant(column: exp.Column, name: str) -> bool:
    written = column.table if isinstance(column.this, exp.Star) else column.name
    return written.lower() == name.lower()


def _error_at(column: exp.Column, sources: Sources) -> QueryError | None:
    """What is wrong with a column of this FROM clause; None if nothing is."""
    by_alias = {alias.lower(): (alias, columns) for alias, columns in sources.columns.items()}
    alias, columns = by_alias.get(column.table.lower(), ("", sources.names))
    if isinstance(column.this, exp.Star):
        return None if alias else _unknown_table(column.table, list(sources.columns))
    found = column.name.lower() in map(str.lower, columns)
    if found or not columns or (column.table and not alias):
        return None
    if (equals := _option(column)) is not None:
        name, value = column.name, to_sql(equals.expression)
        return QueryError(
            f"'{name} = {value}' compares a column '{name}', which does not exist. To set the "
            f"LLM option, write {name} := {value}."
        )
    tables = [alias] if alias else list(sources.columns)
    where = f"table{'s' if len(tables) > 1 else ''} {', '.join(tables)}" if tables else "this query"
    return UnknownColumnError(column.name, where, dict.fromkeys(columns))


def _option(column: exp.Column) -> exp.EQ | None:
    """The `labels = [...]` that a column is in, if it is an argument of a call."""
    equals = column.parent
    is_argument = (
        isinstance(equals, exp.EQ)
        and column.arg_key == "this"
        and column.name.lower() in _OPTIONS
        and equals.parent is not None
        and call_number(equals.parent) is not None
    )
    return equals if is_argument and isinstance(equals, exp.EQ) else None


def _unknown_table(name: str, tables: list[str]) -> QueryError:
    return QueryError(unknown("table", name, tables, of="this FROM clause"))
