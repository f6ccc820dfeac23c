"""The tables of a server: read into memory once, then out of reach of files and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from relquery.connection import Connection
from relquery.demo.files import table_path
from relquery.errors import ConfigError
from relquery.serve.sql_workers.work import Table
from relquery.sql import tables as hosts
from relquery.sql.host.database import Database
from relquery.sql.names import quoted, quoted_text

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


@dataclass(frozen=True, slots=True)
class Desk:
    """What a job has."""

    connection: Connection
    """Over the tables, with the tenant's answers."""
    tables: Tables
    tell: Callable[[Any], None]
    """Says something to whoever reads; waits while they are behind."""


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
    for schema, table in _named(connection, _FILE):
        place, source = f"{quoted(name)}.{quoted(table)}", f"{quoted(schema)}.{quoted(table)}"
        connection.execute(f"CREATE TABLE {place} AS SELECT * FROM {_FILE}.{source}")
        connection.execute(f"DROP VIEW IF EXISTS temp.{quoted(table)}")
        view = f"CREATE VIEW IF NOT EXISTS main.{quoted(table)} AS SELECT * FROM {place}"
        connection.execute(view)
    connection.execute(f"DETACH {_FILE}")


def _named(connection: Any, database: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = connection.execute(
        "SELECT DISTINCT schema_name, table_name FROM duckdb_columns() "
        f"WHERE database_name = {quoted_text(database)} AND NOT internal ORDER BY ALL"
    ).fetchall()
    return found


def _tables(connection: Any) -> Iterator[Table]:
    columns = connection.execute(
        "SELECT schema_name, table_name, list((column_name, data_type) ORDER BY column_index) "
        "FROM duckdb_columns() WHERE database_name = 'memory' AND NOT internal "
        "GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    for schema, name, pairs in columns:
        place = f"{quoted(schema)}.{quoted(name)}"
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {place}").fetchall()
        yield Table(schema, name, tuple((str(one), str(kind)) for one, kind in pairs), rows)
