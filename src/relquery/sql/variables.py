"""Python variables that statements read as tables, by their names, as DuckDB's scans do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import CO_OPTIMIZED
from typing import Any

from relquery.errors import QueryError, RelqueryError, UnknownTableError
from relquery.sql import tables as hosts
from relquery.sql.host.database import Database
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import read_shell
from relquery.sql.parser.statements import split
from relquery.sql.parser.tree import Query, Table

_OURS = __name__.partition(".")[0]


def callers_variables() -> dict[str, Any]:
    """Variables with frames that the code which called relquery sees: local ones, then global."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__")):
        frame = frame.f_back
    local = frame.f_locals
    seen = {**frame.f_globals, **local}
    if frame.f_code.co_flags & CO_OPTIMIZED and isinstance(local, dict):
        local.clear()  # a copy that Python before 3.13 keeps: it would hold what `del` frees
    return {name: value for name, value in seen.items() if hosts.is_frame(value)}


@contextmanager
def lent(database: Database, sql: str, variables: Mapping[str, Any]) -> Iterator[None]:
    """A block in which statements can read variables as tables.

    Only frames that the SQL reads, and only where no table has that name.
    """
    named = {name for name, value in variables.items() if name in sql and hosts.is_frame(value)}
    lending = named and named & _tables_read(sql, database)
    known = {name.lower() for name in database.tables()} if lending else set()
    registered = []
    try:
        for name in sorted(lending):
            if name.lower() not in known:
                hosts.register(database, name, variables[name], called=f"The variable '{name}'")
                registered.append(name)
        try:
            yield
        except UnknownTableError as error:
            unknown = next((name for name in named if f"'{name}'" in str(error)), None)
            if unknown is None:
                raise
            raise QueryError(
                f"{unknown} is a variable, which a statement such as CREATE VIEW cannot read. "
                f"Register it first: con.register('{unknown}', {unknown})."
            ) from error
    finally:
        for name in registered:
            with suppress(RelqueryError):  # such as after `close`
                database.unregister(name)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and (module == _OURS or module.startswith(f"{_OURS}."))


def _tables_read(sql: str, database: Database) -> set[str]:
    """Tables that statements read, without those that they write to or define in WITH."""
    read, others = set[str](), set[str]()
    try:
        texts = split(sql, database)
    except QueryError:  # who runs the statements says why
        return set()
    for text in texts:
        try:
            shell = read_shell(text.query)
            if shell.kind == "OTHER":
                continue
            tree = parser().query(shell.query)
        except QueryError:  # a statement of DuckDB alone, which reads no frame
            continue
        others |= {entry.name.lower() for query in tree.find_all(Query) for entry in query.entries}
        if shell.path:
            others.add(shell.path[-1].lower())
        read |= {table.table for table in tree.find_all(Table) if len(table.path) == 1}
    return {name for name in read if name.lower() not in others}
