"""The tables of a server, and which statements of clients may read them.

Tables are read into memory once, then out of reach of files and settings. A statement may read the
registered tables and nothing else: DuckDB parses it, and each part of its tree must be on a list.
The database itself is locked as well, so no statement reaches a file, whatever is missed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import duckdb

from relquery.demo.files import table_path
from relquery.errors import ConfigError, did_you_mean
from relquery.serve.errors import HttpError, bad_request
from relquery.serve.sql_workers.work import RegisteredTable
from relquery.sql import names as ours
from relquery.sql import tables as hosts
from relquery.sql.host.database import Database
from relquery.sql.names import quoted, quoted_text
from relquery.sql.parser.statements import StatementText, split

_DEMO = "demo:"
_FILE = "file_of_a_table"
"""What a file is called while its tables are read."""


class Tables:
    """One DuckDB database in memory, which a fork has as well.

    connection: to it. size: what it may take, such as "2GB". memory: the same in bytes. all: the
    tables.
    """

    def __init__(
        self, files: Mapping[str, str], memory: str, database: Database | None = None
    ) -> None:
        """Read files, or bundled tables as "demo:movies", by the names of the tables.

        database: that they become tables of; None for a new one.

        Raises TableError for what cannot be read, and ConfigError for a wrong memory.
        """
        database = database or Database.open()
        self.connection: Any = database.connection
        self.size = memory
        try:
            self.connection.execute(f"SET memory_limit = {quoted_text(memory)}")
            parsed = f"SELECT parse_formatted_bytes({quoted_text(memory)})"
            ((self.memory,),) = self.connection.execute(parsed).fetchall()
        except duckdb.Error as error:
            raise ConfigError(
                f"sql_memory is {memory!r}; it must be a size such as '2GB'."
            ) from error
        for name, file in files.items():
            is_demo = file.startswith(_DEMO)
            path = table_path(file.removeprefix(_DEMO)) if is_demo else file
            hosts.register(database, _FILE, path, called=f"Table '{name}'")
            _take_in(self.connection, name)
        self.all = tuple(_tables(self.connection))

    def rest(self) -> None:
        """End all threads of the database, so that this process can be forked."""
        for each in (self.connection, duckdb.default_connection()):
            each.execute("SET threads = 1")
            each.execute("SET async_threads = 0")

    def begin(self, threads: int) -> None:
        """Be ready for statements of strangers: with so many threads, and out of reach of all but
        the tables."""
        for setting in (f"threads = {threads}", *_LOCKED):
            self.connection.execute(f"SET {setting}")

    def cursor(self) -> Any:
        """Another connection to the database."""
        return self.connection.cursor()

    def close(self) -> None:
        """Free the tables."""
        self.connection.close()


_LOCKED = (
    # No statement reaches a file, not even those in which DuckDB keeps what memory cannot hold.
    "temp_directory = ''",
    "enable_external_access = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "allow_community_extensions = false",
    # Nor a variable of this program.
    "python_enable_replacements = false",
    "lock_configuration = true",
)


def _take_in(connection: Any, name: str) -> None:
    """Make tables of what was registered, which reads its file each time."""
    attached = f"SELECT 1 FROM duckdb_databases() WHERE database_name = '{_FILE}'"
    if not connection.execute(attached).fetchall():
        connection.execute(f"CREATE TABLE main.{quoted(name)} AS SELECT * FROM temp.{_FILE}")
        connection.execute(f"DROP VIEW temp.{_FILE}")
        return
    connection.execute(f"CREATE SCHEMA {quoted(name)}")
    named = (
        "SELECT DISTINCT schema_name, table_name FROM duckdb_columns() "
        f"WHERE database_name = '{_FILE}' AND NOT internal ORDER BY ALL"
    )
    for schema, table in connection.execute(named).fetchall():
        place, source = f"{quoted(name)}.{quoted(table)}", f"{quoted(schema)}.{quoted(table)}"
        connection.execute(f"CREATE TABLE {place} AS SELECT * FROM {_FILE}.{source}")
        connection.execute(f"DROP VIEW IF EXISTS temp.{quoted(table)}")
        view = f"CREATE VIEW IF NOT EXISTS main.{quoted(table)} AS SELECT * FROM {place}"
        connection.execute(view)
    connection.execute(f"DETACH {_FILE}")


def _tables(connection: Any) -> Iterator[RegisteredTable]:
    columns = connection.execute(
        "SELECT schema_name, table_name, list((column_name, data_type) ORDER BY column_index) "
        "FROM duckdb_columns() WHERE database_name = 'memory' AND NOT internal "
        "GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    for schema, name, pairs in columns:
        place = f"{quoted(schema)}.{quoted(name)}"
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {place}").fetchall()
        yield RegisteredTable(
            schema, name, tuple((str(name), str(kind)) for name, kind in pairs), rows
        )


MOST_CHARACTERS = 100_000
"""Of a statement."""

_QUERIES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_ROWS = {
    "generate_series", "range", "unnest", "repeat", "json_each", "json_tree", "histogram",
    "histogram_values", *(name.lower() for name in ours.USAGES),
}  # fmt: skip
_LISTINGS = {'"tables"', "__show_tables_expanded"}
_FORBIDDEN = {
    # settings, and what is outside of the tables
    "current_setting", "getenv", "getvariable", "current_query", "current_database",
    "current_catalog", "current_schemas", "in_search_path", "stats",
    # effects
    "nextval", "currval", "setval", "setseed", "write_log",
    # waiting
    "sleep_ms", "pg_sleep",
    # SQL in texts
    "json_deserialize_sql", "json_serialize_plan",
}  # fmt: skip


def check_reads(sql: str, database: Database, tables: Iterable[RegisteredTable]) -> StatementText:
    """The one statement of a text.

    Raises HttpError for what a client may not run, and SqlSyntaxError for what does not parse.
    """
    if len(sql) > MOST_CHARACTERS:
        raise _refused(f"The query has {len(sql):,} characters; at most {MOST_CHARACTERS:,} may be")
    texts = split(sql, database)
    if len(texts) > 1:
        raise _refused(f"These are {len(texts)} statements. Send one at a time")
    (statement,) = texts
    query = statement.given if statement.option is None else statement.query
    execute = database.connection.execute
    written = execute("SELECT json_serialize_sql($query::VARCHAR)", {"query": query}).fetchone()[0]
    if (tree := json.loads(written))["error"]:  # it is not one that can only read
        kind = (
            statement.kind.replace("_", " ")
            if statement.option is None
            else "what EXPLAIN is given"
        )
        pivot = " A PIVOT must list its values: PIVOT t ON a IN (1, 2)." if kind == "MULTI" else ""
        raise _refused(
            f"The statement is {kind}. Only statements that read can be run: SELECT, WITH, FROM, "
            f"VALUES, DESCRIBE, SUMMARIZE, SHOW TABLES, and EXPLAIN of these.{pivot}"
        )
    parts = list(_parts(tree["statements"]))
    named = {str(entry["key"]).lower() for part in parts for entry in _ctes(part)}
    views = execute("SELECT lower(view_name) FROM duckdb_views() WHERE internal").fetchall()
    if own := named & {name for (name,) in views}:
        raise _refused(f"WITH defines '{min(own)}', which is a name of DuckDB's own")
    known = {(each.schema.lower(), each.name.lower()) for each in tables}
    for part in parts:
        _check_part(part, known, named)
    return statement


def _check_part(part: dict[str, Any], tables: set[tuple[str, str]], named: set[str]) -> None:
    """Raises HttpError for a part of a statement's tree. named: by its WITH."""
    match part:
        case {"type": str(kind)} if kind.endswith("_NODE") and kind not in _QUERIES:
            raise _refused("The statement changes something. Only reading is allowed")
        case {"type": "TABLE_FUNCTION", "function": {"function_name": str(name)}}:
            if name.lower() not in _ROWS:
                raise _refused(f"FROM {name}(...) is not allowed")
        case {"type": "TABLE_FUNCTION"}:
            raise _refused("A function in FROM without a name is not allowed")
        case {"type": "BASE_TABLE", "qualified_name": {"path": [*path]}}:
            _check_table(path, tables, named)
        case {"type": "BASE_TABLE"}:
            raise _refused("A table without a name is not allowed")
        case {"type": "SHOW_REF", "query": None}:
            path = part.get("qualified_name", {}).get("path", [])
            if not (len(path) == 1 and path[0] in _LISTINGS):
                _check_table(path, tables, named)
        case {"function_name": str(name)}:
            if name.lower() in _FORBIDDEN or name.lower().startswith(ours.PREFIX):
                raise _refused(f"The function {name} is not allowed")


def _check_table(path: list[str], tables: set[tuple[str, str]], named: set[str]) -> None:
    lower = [str(part).lower() for part in path]
    if len(lower) == 1 and lower[0] in named:
        return
    place = lower[1:] if len(lower) == 3 and lower[0] == "memory" else lower
    whole = ("main", *place) if len(place) == 1 else tuple(place)
    if whole not in tables:
        known = sorted(name for schema, name in tables if schema == "main")
        hint = did_you_mean(lower[-1] if lower else "", known)
        table, listing = ".".join(map(str, path)), ", ".join(known) or "none"
        message = f"The table '{table}' does not exist. Tables: {listing}.{hint}"
        raise bad_request(message, "query", "unknown_table")


def _parts(value: object) -> Iterator[dict[str, Any]]:
    """All objects in a JSON value."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as node:
                yield node
                waiting += node.values()
            case list() as node:
                waiting += node


def _ctes(part: dict[str, Any]) -> list[Any]:
    match part:
        case {"cte_map": {"map": [*entries]}}:
            return entries
    return []


def _refused(why: str) -> HttpError:
    return HttpError(403, why if why.endswith(".") else f"{why}.", "not_allowed", "query")
