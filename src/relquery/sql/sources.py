"""The tables of one FROM clause: their columns, what a column reference means, what a star is."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql.database import Database
from relquery.sql.scopes import Context
from relquery.sql.source import DIALECT

_FROM_CLAUSES = ("from_", "joins", "laterals", "sample")


@dataclass(frozen=True, slots=True)
class Sources:
    """columns: of every named source, by its alias as written. names: of `SELECT *`, in order."""

    columns: dict[str, list[str]]
    names: list[str]

    def resolve(self, column: exp.Column) -> tuple[str, str] | None:
        """(source, name) in their own spelling; None if that is DuckDB's to say.

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
    """A copy with the FROM clause and nothing else, for the caller to fill."""
    copy = select.copy()
    for key in list(copy.args):
        if key not in _FROM_CLAUSES:
            copy.set(key, None)
    return copy


def read_sources(database: Database, select: exp.Select, context: Context) -> Sources:
    """Ask DuckDB what the FROM clause gives. Raises QueryError as DuckDB does."""
    if select.args.get("from_") is None:
        return Sources({}, [])
    columns = {}
    for alias in _aliases(select):
        star = exp.Column(this=exp.Star(), table=exp.to_identifier(alias, quoted=True))
        columns[alias] = _names(database, select, context, star)
    return Sources(columns, _names(database, select, context, exp.Star()))


def star_columns(
    star: exp.Expr, sources: Sources, database: Database, select: exp.Select, context: Context
) -> list[exp.Column]:
    """The columns that a star stands for, each as a reference to exactly one source if possible.

    Raises UnsupportedQueryError where names alone do not say which columns these are.
    """
    names = _names(database, select, context, star.copy())
    candidates = [
        (source, name)
        for source, known in sources.columns.items()
        for name in known
        if _table_of(star) in ("", source.lower())
    ]
    listing = [name.lower() for name in names]
    if [name.lower() for _, name in candidates] == listing:
        return [_reference(source, name) for source, name in candidates]
    if len(set(listing)) < len(listing) or _changes_columns(star):
        raise UnsupportedQueryError(
            f"{star.sql(dialect=DIALECT)} in a query with LLM calls gives columns that are not "
            "named apart. Name the columns instead."
        )
    return [_unique_reference(name, candidates) for name in names]


def is_star(node: exp.Expr) -> bool:
    """Whether an argument or select item stands for several columns."""
    if isinstance(node, exp.Column):
        return isinstance(node.this, exp.Star)
    return isinstance(node, exp.Star | exp.Columns)


def _table_of(star: exp.Expr) -> str:
    return star.table.lower() if isinstance(star, exp.Column) else ""


def _changes_columns(star: exp.Expr) -> bool:
    inner = star.this if isinstance(star, exp.Column) else star
    return bool(inner.args.get("replace") or inner.args.get("rename"))


def _reference(source: str, name: str) -> exp.Column:
    return exp.column(name, table=source, quoted=True)


def _unique_reference(name: str, candidates: list[tuple[str, str]]) -> exp.Column:
    found = [pair for pair in candidates if pair[1].lower() == name.lower()]
    return _reference(*found[0]) if len(found) == 1 else exp.column(name, quoted=True)


def _aliases(select: exp.Select) -> list[str]:
    sources = [select.args["from_"].this]
    sources += [join.this for join in select.args.get("joins") or ()]
    sources += select.args.get("laterals") or ()
    return [source.alias_or_name for source in sources if source.alias_or_name]


def _names(database: Database, select: exp.Select, context: Context, item: exp.Expr) -> list[str]:
    probe = from_only(select)
    probe.set("expressions", [item])
    try:
        described = database.describe(context.sql(probe.sql(dialect=DIALECT, comments=False)))
    except QueryError:
        # A source without columns of its own name, such as `FROM unnest(...) AS u`.
        if isinstance(item, exp.Column):
            return []
        raise
    return [name for name, _ in described]
