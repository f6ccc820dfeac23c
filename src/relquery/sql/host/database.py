"""The host database: DuckDB, its errors as ours, and scratch tables that never stay behind."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa

from relquery.errors import ConfigError, RelqueryError
from relquery.sql import names as ours
from relquery.sql.exchange.export import to_arrow
from relquery.sql.host.errors import Tables, busy, from_duckdb


@dataclass(slots=True)
class _Turn:
    """Whose turn it is on a connection: one thread's, and with scratch tables one query's.

    entered: how often the thread has it.
    """

    thread: threading.RLock = field(default_factory=threading.RLock)
    entered: int = 0
    has_scratch: bool = False


# While this is set, a misspelt table would silently be a Python variable of ours.
_REPLACEMENTS = "python_enable_replacements"


@dataclass(frozen=True, slots=True)
class Database:
    """One DuckDB connection. Raises QueryError where two threads use it at once.

    is_ours: whether it was opened here. prepared: statements with LLM calls by lower-case name, as
        DuckDB cannot prepare these.
    """

    connection: Any
    is_ours: bool = True
    _turn: _Turn = field(default_factory=_Turn, repr=False, compare=False)
    prepared: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, source: str | Path | duckdb.DuckDBPyConnection = ":memory:") -> Database:
        """Open a DuckDB file or a database in memory, or take a connection as it is.

        Raises TableError for a file that is no database, ConfigError for what is none of these.
        """
        if isinstance(source, duckdb.DuckDBPyConnection):
            return cls(source, is_ours=False)
        if not isinstance(source, str | Path):
            raise ConfigError(
                f"database is {source!r}. Give the path of a DuckDB file, ':memory:', or a "
                "connection of duckdb.connect(...)."
            )
        with _translated("", None):
            connection = duckdb.connect(str(source))
            connection.execute(f"SET {_REPLACEMENTS} = false")
        return cls(connection)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other threads out. Raises QueryError if one is in."""
        turn = self._turn
        if not turn.thread.acquire(blocking=False):
            raise busy()
        turn.entered += 1
        try:
            is_first = turn.entered == 1 and not self.is_ours
            with self._without_replacements() if is_first else contextlib.nullcontext():
                yield
        finally:
            turn.entered -= 1
            turn.thread.release()

    @contextlib.contextmanager
    def _without_replacements(self) -> Iterator[None]:
        """Do what `open` does for connections of our own, until this turn ends."""
        given = None
        with contextlib.suppress(duckdb.Error):  # the statement itself says what is wrong
            setting = f"SELECT current_setting('{_REPLACEMENTS}')"
            (given,) = self.connection.execute(setting).fetchone()
            self.connection.execute(f"SET {_REPLACEMENTS} = false")
        try:
            yield
        finally:
            if given:
                with contextlib.suppress(duckdb.Error):
                    self.connection.execute(f"SET {_REPLACEMENTS} = true")

    def execute(self, sql: str) -> None:
        """Run a statement for its effect."""
        with _translated(sql, self):
            self.connection.execute(sql).fetchall()  # a result not read to its end blocks the next

    def fetch(self, sql: str) -> pa.Table:
        """Run a statement and read its rows; a table without columns if it has none."""
        with _translated(sql, self):
            relation = self.connection.sql(sql)
            return pa.table({}) if relation is None else relation.to_arrow_table()

    def result(self, sql: str) -> pa.Table:
        """The same for whoever asked for it: every value in a form that Arrow has."""
        with _translated(sql, self):
            relation = self.connection.sql(sql)
            return pa.table({}) if relation is None else to_arrow(relation)

    def describe(self, query: str) -> list[tuple[str, str]]:
        """(name, type) of every column the query gives, without running it."""
        with _translated(query, self):
            rows = self.connection.execute(f"DESCRIBE {query}").fetchall()
        return [(row[0], row[1]) for row in rows]

    def bind(self, statement: str) -> None:
        """Have DuckDB look for what is wrong with a statement, without running it."""
        with _translated(statement, self):
            self.connection.execute(f"EXPLAIN {statement}").fetchall()

    @property
    def compares_exactly(self) -> bool:
        """Whether texts are equal only if all their characters are."""
        setting = self.fetch("SELECT current_setting('default_collation')").column(0)[0].as_py()
        return not setting

    def statements(self, sql: str) -> list[str]:
        """The statements of a text. Raises SqlSyntaxError."""
        with _translated(sql, self):
            return [statement.query for statement in self.connection.extract_statements(sql)]

    def register(self, name: str, data: object) -> None:
        """Make an object that DuckDB can scan available as a table."""
        with _translated("", self):
            self.connection.register(name, data)

    def unregister(self, name: str) -> None:
        """Undo `register`."""
        with _translated("", self):
            self.connection.unregister(name)

    def tables(self) -> dict[str, list[str]]:
        """Columns of every table and view, scratch ones aside, by the name to call it by."""
        sql = (
            "SELECT database_name IN (current_database(), 'temp'), database_name, schema_name, "
            "table_name, list(column_name ORDER BY column_index) FROM duckdb_columns() "
            "WHERE NOT internal GROUP BY ALL ORDER BY ALL DESC"
        )
        with _translated("", self):
            rows = self.connection.execute(sql).fetchall()
        tables = {}
        for own, database, schema, table, columns in rows:
            path = [*([] if own else [database]), *([] if schema == "main" else [schema]), table]
            if not table.startswith(ours.PREFIX):
                tables[".".join(path)] = columns
        return tables

    def columns_used(self, sql: str) -> Tables:
        """Columns of the tables that a text names, by lower-case name; empty if unknown."""
        try:
            names = {name.lower() for name in self.connection.get_table_names(sql)}
        except duckdb.Error:
            return {}
        tables = {name.lower(): columns for name, columns in self.tables().items()}
        return {name: tables[name] for name in tables if name in names}

    def close(self) -> None:
        """Close the connection, unless it was handed in."""
        if self.is_ours:
            self.connection.close()


@contextlib.contextmanager
def _translated(sql: str, database: Database | None) -> Iterator[None]:
    try:
        with database.held() if database else contextlib.nullcontext():
            yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except RuntimeError as error:  # as which some calls of DuckDB report the same
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from None
        raise
    except duckdb.Error as error:
        used: Tables = {}
        known: list[str] = []
        if database and sql:  # without SQL there are no names to look up
            with contextlib.suppress(RelqueryError):
                used, known = database.columns_used(sql), list(database.tables())
        raise from_duckdb(error, sql, used, known) from error


@dataclass(slots=True)
class Scratch:
    """Tables that live for one query: all are dropped when the context ends, however it ends."""

    database: Database
    _tables: dict[str, str] = field(default_factory=dict)
    _views: list[str] = field(default_factory=list)

    def __enter__(self) -> Scratch:
        if self.database._turn.has_scratch:
            raise busy()
        self.database._turn.has_scratch = True
        return self

    def table(self, select: str) -> str:
        """Run a query into a table, once, and give the table's name."""
        if select not in self._tables:
            name = f"{ours.PREFIX}table_{len(self._tables)}"
            self._tables[select] = name
            try:
                self.database.execute(f"CREATE TEMP TABLE {name} AS {select}")
            except RelqueryError:
                del self._tables[select]
                raise
        return self._tables[select]

    def view(self, data: pa.Table) -> str:
        """Make an Arrow table readable and give its name."""
        name = f"{ours.PREFIX}view_{len(self._views)}"
        self._views.append(name)
        self.database.register(name, data)
        return name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.database._turn.has_scratch = False
        for name in self._views:
            self.database.unregister(name)
        for name in self._tables.values():
            self.database.execute(f"DROP TABLE IF EXISTS temp.{name}")
