"""Unknown columns: what DuckDB says of them made fuller by the FROM clause they stand in."""

from __future__ import annotations

from sqlglot import exp

from relquery.errors import QueryError, RelqueryError, UnknownColumnError, did_you_mean
from relquery.sql.database import Database
from relquery.sql.functions import OPTIONS
from relquery.sql.scopes import context_of
from relquery.sql.source import call_number, read_source, to_sql
from relquery.sql.sources import Sources, read_sources


def in_scope(error: UnknownColumnError, sql: str, database: Database) -> QueryError:
    """An error that names every column that could have been meant; the same one if unknown."""
    try:
        tree = read_source(sql).parse()
        for column in tree.find_all(exp.Column):
            select = column.find_ancestor(exp.Select)
            if select is None or not _is_meant(column, error.column):
                continue
            sources = read_sources(database, select, context_of(select))
            if (better := _error_at(column, sources)) is not None:
                return better
    except RelqueryError:
        pass
    return error


def _is_meant(column: exp.Column, name: str) -> bool:
    written = column.table if isinstance(column.this, exp.Star) else column.name
    return written.lower() == name.lower()


def _error_at(column: exp.Column, sources: Sources) -> QueryError | None:
    """What is wrong with a column of this FROM clause; None if nothing is."""
    by_alias = {alias.lower(): (alias, columns) for alias, columns in sources.columns.items()}
    alias, columns = by_alias.get(column.table.lower(), ("", sources.names))
    if isinstance(column.this, exp.Star):
        return None if alias else _unknown_table(column.table, list(sources.columns))
    if column.name.lower() in map(str.lower, columns) or (column.table and not alias):
        return None
    if _is_option(column):
        name, value = column.name, to_sql(column.parent.expression)
        return QueryError(
            f"'{name} = {value}' compares a column '{name}', which is not there. To set an option "
            f"of LLM, write {name} := {value}."
        )
    tables = [alias] if alias else list(sources.columns)
    where = f"table{'s' if len(tables) > 1 else ''} {', '.join(tables)}" if tables else "this query"
    return UnknownColumnError(column.name, where, columns)


def _is_option(column: exp.Column) -> bool:
    """Whether `labels = [...]` stands as an argument of a call."""
    equals = column.parent
    return (
        isinstance(equals, exp.EQ)
        and column.arg_key == "this"
        and column.name.lower() in OPTIONS
        and equals.parent is not None
        and call_number(equals.parent) is not None
    )


def _unknown_table(name: str, tables: list[str]) -> QueryError:
    listing = ", ".join(tables) or "none"
    return QueryError(
        f"'{name}' is no table of this FROM clause. Tables there: {listing}."
        + did_you_mean(name, tables)
    )
