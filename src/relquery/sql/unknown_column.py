"""A better error for an unknown column: one that lists all columns in scope."""

from __future__ import annotations

from relquery.errors import QueryError, RelqueryError, UnknownColumnError, unknown
from relquery.sql.binder.arguments import OF_ALL
from relquery.sql.binder.call import is_asking
from relquery.sql.binder.definitions import parsed
from relquery.sql.binder.llm_functions import FUNCTIONS
from relquery.sql.binder.signatures import sources_of
from relquery.sql.binder.sources import Sources
from relquery.sql.host.database import Database
from relquery.sql.parser import build
from relquery.sql.parser.shell import read_shell
from relquery.sql.parser.tree import Argument, Column, Comparison, Function, Limit, Select, Star


def in_scope(error: UnknownColumnError, sql: str, database: Database) -> QueryError:
    """The error with all columns in scope; the given error if they are unknown."""
    try:
        tree = parsed(read_shell(sql).query)
        for column in list(tree.walk()):
            if not isinstance(column, Column | Star):
                continue
            select = column.ancestor(Select)
            if select is None or not _is_meant(column, error.column):
                continue
            if column.ancestor(Limit, Select) is not select:
                return QueryError(
                    f"LIMIT and OFFSET take a number, not the column '{error.column}'."
                )
            probe = Select(from_table=None if select.source is None else select.source.copy())
            sources = sources_of(select, probe, database)
            if (better := _error_at(column, sources, sql)) is not None:
                return better
    except RelqueryError:
        pass
    return error


def _is_meant(column: Column | Star, name: str) -> bool:
    written = column.table if isinstance(column, Star) else column.name
    return written.lower() == name.lower()


def _error_at(column: Column | Star, sources: Sources, sql: str) -> QueryError | None:
    """What is wrong with a column of this FROM clause; None if nothing is."""
    by_alias = {alias.lower(): (alias, columns) for alias, columns in sources.columns.items()}
    alias, columns = by_alias.get(column.table.lower(), ("", sources.names))
    if isinstance(column, Star):
        if alias:
            return None
        tables = list(sources.columns)
        return QueryError(unknown("table", column.table, tables, of="this FROM clause"))
    found = column.name.lower() in map(str.lower, columns)
    if found or not columns or (column.table and not alias):
        return None
    equals = column.parent
    if isinstance(equals, Comparison) and equals.left is column and _is_option(column, equals):
        start, end = equals.span or (0, 0)
        written = sql.encode()[start:end].decode(errors="replace")
        name, value = column.name, written.partition("=")[2].strip()
        return QueryError(
            f"'{name} = {value}' compares a column '{name}', which does not exist. To set the "
            f"LLM option, write {name} := {value}."
        )
    tables = [alias] if alias else list(sources.columns)
    where = f"table{'s' if len(tables) > 1 else ''} {', '.join(tables)}" if tables else "this query"
    return UnknownColumnError(column.name, where, dict.fromkeys(columns))


def _is_option(column: Column, equals: Comparison) -> bool:
    """Whether a comparison such as `labels = [...]` is meant to set an option of a function."""
    argument = equals.parent
    function = argument.parent if isinstance(argument, Argument) else None
    if not isinstance(function, Function) or not is_asking(function):
        return False
    options = (*OF_ALL, *FUNCTIONS[function.name.lower()][1])
    return equals.kind == build.EQUAL and column.name.lower() in options
