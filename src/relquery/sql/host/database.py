"""The host database: DuckDB with its errors translated to ours, and temporary scratch tables."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from relquery.errors import ConfigError, QueryError, RelqueryError
from relquery.sql import names as ours
from relquery.sql.exchange.arrow import Most, read, to_arrow
from relquery.sql.host.catalog import KeptDefinitions, ListedFunctions, Listing, PythonFunctions
from relquery.sql.host.errors import Tables, busy, first_line, from_duckdb
from relquery.sql.host.statement_thread import StatementThread
from relquery.sql.names import quoted


@dataclass(slots=True)
class _FairLock:
    """The turn to use a connection: one thread at a time, and one query while there are scratch
    tables.

    entered: how many times the thread has entered. statements: where DuckDB runs them.
    """

    thread: threading.RLock = field(default_factory=threading.RLock)
    entered: int = 0
    has_scratch: bool = False
    statements: StatementThread | None = None


class Parsed(NamedTuple):
    """A statement as DuckDB splits a text. kind: e.g. "SELECT". parameters: their names."""

    text: str
    kind: str
    parameters: frozenset[str]


class Constraint(NamedTuple):
    """A constraint of a table. kind: as DuckDB says it. text: as in CREATE TABLE. condition: of a
    CHECK."""

    kind: str
    columns: list[str]
    text: str
    condition: str | None

    @property
    def is_key(self) -> bool:
        """Whether no two rows have the same values in its columns."""
        return self.kind in ("PRIMARY KEY", "UNIQUE")


# While this is set, a misspelt table name could silently match one of our Python variables.
_REPLACEMENTS = "python_enable_replacements"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Database:
    """One DuckDB connection. Raises QueryError if two threads use it at once.

    is_ours: whether it was opened here. kept: what DuckDB cannot keep. functions: those in Python.
        bound: values of parameters by lower-case name, for texts that are described as the user
        wrote them. preparations: read what functions need, which may not read tables while a
        statement runs. most: that is read at once. listed: which functions there are. attached: of
        database files that were registered, the path and the views of their tables, by lower-case
        name.
    """

    connection: Any
    is_ours: bool = True
    kept: KeptDefinitions = field(default_factory=KeptDefinitions)
    functions: PythonFunctions = field(default_factory=PythonFunctions)
    bound: dict[str, Any] = field(default_factory=dict)
    preparations: list[Callable[[str], None]] = field(default_factory=list)
    most: Most | None = None
    listed: ListedFunctions = field(default_factory=ListedFunctions)
    attached: dict[str, tuple[Path, list[str]]] = field(default_factory=dict)
    _turn: _FairLock = field(default_factory=_FairLock)

    @classmethod
    def open(cls, source: str | Path | duckdb.DuckDBPyConnection = ":memory:") -> Database:
        """Open a DuckDB file or an in-memory database, or use an existing connection.

        Raises TableError for a file that is not a database, ConfigError for any other source.
        """
        if isinstance(source, duckdb.DuckDBPyConnection):
            return cls(source, is_ours=False)._with_macros()
        if not isinstance(source, str | Path):
            raise ConfigError(
                f"database is {source!r}. Give the path of a DuckDB file, ':memory:', or a "
                "connection from duckdb.connect(...)."
            )
        with _translated("", None):
            connection = duckdb.connect(str(source))
            connection.execute(f"SET {_REPLACEMENTS} = false")
        listed = ListedFunctions(is_private=str(source) == ":memory:")
        return cls(connection, listed=listed)._with_macros()

    def _with_macros(self) -> Database:
        """The same, once it has the macros that readings of answers call."""
        for name, body in ours.MACROS.items():
            self.execute(f"CREATE OR REPLACE TEMP MACRO {name}(answer) AS {body}")
        return self

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other threads out. Raises QueryError if another thread is using the connection."""
        turn = self._turn
        if not turn.thread.acquire(blocking=False):
            raise busy()
        if self.is_ending:
            turn.thread.release()
            raise QueryError(
                "DuckDB is still ending the statement that was interrupted: it looks for an "
                "interrupt only between two parts of the rows. Try again in a while, or open "
                "another connection."
            )
        turn.entered += 1
        is_first = turn.entered == 1
        if is_first:
            self.listed.begin()
        is_theirs = is_first and not self.is_ours
        try:
            with self._without_replacements() if is_theirs else contextlib.nullcontext():
                yield
        finally:
            turn.entered -= 1
            if not (turn.entered or turn.statements is None or self.is_ending):
                turn.statements.end()
            turn.thread.release()

    @property
    def is_ending(self) -> bool:
        """Whether a statement that was interrupted still computes; nothing else can run then."""
        return self._turn.statements is not None and self._turn.statements.is_busy

    def await_end(self) -> None:
        """Wait until it has ended."""
        if self._turn.statements is not None:
            self._turn.statements.await_end()

    @property
    def _statements(self) -> StatementThread:
        if self._turn.statements is None:
            self._turn.statements = StatementThread(self.connection.interrupt)
        return self._turn.statements

    @contextlib.contextmanager
    def _without_replacements(self) -> Iterator[None]:
        """Turn replacements off until this turn ends, as `open` does for our own connections."""
        given = None
        with contextlib.suppress(duckdb.Error):  # the statement itself will report the error
            setting = f"SELECT current_setting('{_REPLACEMENTS}')"
            (given,) = self.connection.execute(setting).fetchone()
            self.connection.execute(f"SET {_REPLACEMENTS} = false")
        try:
            yield
        finally:
            if given:
                self._statements.afterwards(self._replace_again)

    def _replace_again(self) -> None:
        with contextlib.suppress(duckdb.Error):
            self.connection.execute(f"SET {_REPLACEMENTS} = true")

    def check_open(self) -> None:
        """Raises QueryError if the connection is closed."""
        with _translated("", self):
            self.connection.query_progress()  # of what it can say, this is said soonest

    def prepare(self, sql: str) -> None:
        """Have Python functions ready for a statement. It is given as it is written."""
        with self.held():
            self.functions.refresh(self.connection, sql)
        for read_for in self.preparations:
            read_for(sql)

    def execute(self, sql: str) -> list[Any]:
        """Run a statement for its effect. Returns what DuckDB says of it, as the count of rows."""
        self.listed.note(sql)
        with _translated(sql, self):
            # A partly read result blocks the next.
            values = self._values(sql)
            return self._statements.run(lambda: self.connection.execute(sql, values).fetchall())

    def fetch(self, sql: str) -> pa.Table:
        """Run a statement and read its rows; a table without columns if it has none."""
        return self._read(sql, None, read)

    def result(self, sql: str, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Like `fetch`, for the user: converts every value to a type that Arrow has.

        values: of the statement's parameters, by name.
        """
        return self._read(sql, values, to_arrow)

    def _read(
        self,
        sql: str,
        values: Mapping[str, Any] | None,
        rows_of: Callable[[Any, Most | None], pa.Table],
    ) -> pa.Table:
        self.listed.note(sql)
        with _translated(sql, self):
            given = self._values(sql, values)

            def table() -> pa.Table:
                relation = self.connection.sql(sql, params=given)
                return pa.table({}) if relation is None else rows_of(relation, self.most)

            return self._statements.run(table)

    def columns(self, query: str) -> list[tuple[str, str]]:
        """(name, type) of every column of the query, without running it."""
        with _translated(query, self):
            # As relations: an error of `execute` would end the user's transaction.
            if values := self._values(query):
                rows = self.connection.sql(f"DESCRIBE {query}", params=values).fetchall()
                return [(name, kind) for name, kind, *_ in rows]
            relation = self.connection.sql(query)
            return list(zip(relation.columns, map(str, relation.types), strict=True))

    def install_function(
        self, name: str, function: Callable[..., Any], kind: str, rows: str = ""
    ) -> None:
        """Give the connection a function of Arrow columns, in place of an older one.

        name: in lower case. For the others see Functions.install. DuckDB may compute the values
        when it plans or prepares a statement.
        """
        with _translated("", self):
            self.functions.install(self.connection, name, function, kind, rows)

    def type(self, name: str) -> Any:
        """A type, as DuckDB's Python package has it, by its SQL. Raises QueryError."""
        with _translated("", self):
            return self.connection.dtype(name)

    def bind(self, statement: str, values: Mapping[str, Any] | None = None) -> None:
        """Have DuckDB check a statement for errors without running it."""
        with _translated(statement, self):
            given = self._values(statement, values)
            self.connection.execute(f"EXPLAIN {statement}", given).fetchall()

    def _values(self, sql: str, given: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The values of a statement's parameters, as given or bound; None if it has none."""
        if given or not self.bound:
            return dict(given) if given else None
        (parsed,) = self.connection.extract_statements(sql)
        return {name: self.bound[name.lower()] for name in parsed.named_parameters} or None

    @contextlib.contextmanager
    def binding(self, values: Mapping[str, Any]) -> Iterator[None]:
        """A block in which parameters have these values, by lower-case name."""
        self.bound.update((name.lower(), value) for name, value in values.items())
        try:
            yield
        finally:
            self.bound.clear()

    def try_value(self, name: str, value: object) -> None:
        """Raises QueryError if DuckDB cannot take a Python value as a parameter."""
        try:
            self.connection.execute("SELECT $value", {"value": value}).fetchall()
        except (duckdb.Error, RuntimeError, ValueError, TypeError, OverflowError) as error:
            said = first_line(str(error)).rstrip(".")
            raise QueryError(
                f"The parameter ${name} is of type {type(value).__name__}, and DuckDB cannot take "
                f"its value ({said}). Pass it as text and cast it in the query."
            ) from error

    @property
    def compares_exactly(self) -> bool:
        """Whether texts are equal only if all their characters are equal."""
        setting = self.fetch("SELECT current_setting('default_collation')").column(0)[0].as_py()
        return not setting

    def statements(self, sql: str) -> list[Parsed]:
        """The statements of a text. Raises SqlSyntaxError."""
        with _translated(sql, self):
            return [
                Parsed(statement.query, statement.type.name, frozenset(statement.named_parameters))
                for statement in self.connection.extract_statements(sql)
            ]

    def register(self, name: str, data: object) -> None:
        """Make an object that DuckDB can scan available as a table."""
        with _translated("", self):
            self.connection.register(name, data)

    def unregister(self, name: str) -> None:
        """Undo `register`."""
        with _translated("", self):
            self.connection.unregister(name)

    def tables(self) -> dict[str, list[str]]:
        """Columns of every table and view except scratch tables, by the name to use in a query."""
        sql = (
            "SELECT database_name IN (current_database(), 'temp'), database_name, schema_name, "
            "table_name, list(column_name ORDER BY column_index) FROM duckdb_columns() "
            "WHERE NOT internal GROUP BY ALL ORDER BY ALL DESC"
        )
        with _translated("", self):
            rows = self.connection.execute(sql).fetchall()
        tables: dict[str, list[str]] = {}
        for own, database, schema, table, columns in rows:
            if not table.startswith(ours.PREFIX):
                path = [*([] if own else [database]), *([] if schema == "main" else [schema])]
                tables[".".join([*path, table])] = columns
        views = [
            definition for definition in self.kept.definitions.values() if definition.kind == "VIEW"
        ]
        return tables | {view.name: list(view.columns) for view in views}

    def paths(self) -> set[tuple[str, ...]]:
        """Every path that leads to a table or view, in lower case; scratch tables have none."""
        rows = self.fetch(
            "SELECT DISTINCT lower(database_name), lower(schema_name), lower(table_name), "
            "database_name IN (current_database(), 'temp'), "
            "schema_name IN ('main', current_schema()) FROM duckdb_columns() "
            f"WHERE NOT internal AND NOT starts_with(table_name, '{ours.PREFIX}')"
        )
        paths: set[tuple[str, ...]] = set()
        columns = (column.to_pylist() for column in rows.columns)
        for database, schema, table, is_own, is_default in zip(*columns, strict=True):
            paths.add((database, schema, table))
            paths |= {(database, table)} if schema == "main" else set()
            paths |= {(schema, table)} if is_own else set()
            paths |= {(table,)} if is_own and is_default else set()
        return paths

    def definitions(self, words: Collection[str]) -> list[tuple[str, str]]:
        """(name, text) of the views and macros whose text has one of some lower-case words."""
        bodies = [
            (definition.name, definition.body) for definition in self.kept.definitions.values()
        ]
        with contextlib.suppress(duckdb.Error):  # the statement itself will report the error
            bodies += self.listed.bodies(self.connection)
        return [
            (name, body) for name, body in bodies if any(word in body.lower() for word in words)
        ]

    def listed_functions(self) -> Listing:
        """The aggregates, macros and volatile functions, by lower-case name."""
        with _translated("", self):
            return self.listed.functions(self.connection)

    def macros(self) -> set[str]:
        """The names of the macros that the user has defined, in lower case."""
        listed = self.listed_functions().items()
        return {name for name, same in listed if any(function.is_users for function in same)}

    def constraints(self, path: Sequence[str]) -> list[Constraint]:
        """The constraints of a table. path: as a query names it; what is before the name may also
        be a database alone, as in `FROM database.table`."""
        table, schema, database = (*reversed(path), "", "")[:3]
        sql = (
            "SELECT DISTINCT constraint_type, constraint_column_names, constraint_text, expression "
            "FROM duckdb_constraints() WHERE lower(table_name) = lower($1) "
            "AND CASE WHEN $2 = '' THEN database_name IN (current_database(), 'temp') "
            "AND schema_name IN (current_schema(), 'main') "
            "ELSE lower($2) IN (lower(schema_name), lower(database_name)) END "
            "AND ($3 = '' OR lower($3) = lower(database_name)) ORDER BY ALL"
        )
        with _translated("", self):
            rows = self.connection.execute(sql, [table, schema, database]).fetchall()
        return list(map(Constraint._make, rows))

    def columns_used(self, sql: str) -> Tables:
        """Columns of the tables that a text names, by lower-case name."""
        # DuckDB would say which tables, but where it cannot it ends the user's transaction.
        text, starts = sql.encode(errors="replace"), [start for start, _ in duckdb.tokenize(sql)]
        tokens = (text[start:end].decode() for start, end in pairwise([*starts, len(text)]))
        words = {token.strip().strip('"').lower() for token in tokens}
        tables = {name.lower(): columns for name, columns in self.tables().items()}
        return {name: tables[name] for name in tables if name in words}

    def close(self) -> None:
        """Close the connection if it was opened here; else leave it without our functions.

        A statement that was interrupted and still computes ends first, which is not waited for.
        """
        self._statements.afterwards(self._close)
        self._statements.end()

    def _close(self) -> None:
        self.functions.remove(self.connection)
        if self.is_ours:
            self.connection.close()


@contextlib.contextmanager
def _translated(sql: str, database: Database | None) -> Iterator[None]:
    try:
        with database.held() if database else contextlib.nullcontext():
            yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except RuntimeError as error:  # some DuckDB calls report errors as this
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
    """Tables for one query. They are dropped when the context ends, but for those of a query that
    was interrupted and has not ended by then: the next one takes their places."""

    database: Database
    _tables: list[str] = field(default_factory=list)
    _views: set[str] = field(default_factory=set)

    def __enter__(self) -> Scratch:
        if self.database._turn.has_scratch:
            raise busy()
        self.database._turn.has_scratch = True
        return self

    def rows(self, select: str) -> tuple[str, int]:
        """Run a query into a table. Returns the table's name and how many rows it has."""
        name = self._new()
        ((count,),) = self.database.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {select}")
        return name, int(count)

    def reserve(self, columns: Sequence[tuple[str, str]]) -> str:
        """Make an empty table for rows to come. Returns its name."""
        name = self._new()
        nulls = (f"CAST(NULL AS {kind}) AS {quoted(column)}" for column, kind in columns)
        empty = f"SELECT {', '.join(nulls)} LIMIT 0"
        self.database.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {empty}")
        return name

    def fill(self, name: str, select: str) -> None:
        """Put the rows of a query into a reserved table, in place of others."""
        self.clear(name)
        self.add(name, select)

    def clear(self, name: str) -> None:
        """Leave no rows in a reserved table."""
        self.database.execute(f"DELETE FROM {name}")

    def add(self, name: str, select: str) -> None:
        """Put the rows of a query into a reserved table, after others."""
        self.database.execute(f"INSERT INTO {name} {select}")

    def view(self, data: pa.Table, place: str) -> str:
        """Make an Arrow table readable until another one takes its place. Returns its name."""
        name = f"{ours.PREFIX}view_{place}"
        self._views.add(name)
        self.database.register(name, data)
        return name

    def _new(self) -> str:
        self._tables.append(f"{ours.PREFIX}table_{len(self._tables)}")
        return self._tables[-1]

    def __exit__(self, *error: object) -> None:
        self.database._turn.has_scratch = False
        # An aborted transaction lets nothing be dropped, and drops all of it itself.
        for name in self._views:
            with contextlib.suppress(RelqueryError):
                self.database.unregister(name)
        for name in self._tables:
            with contextlib.suppress(RelqueryError):
                self.database.execute(f"DROP TABLE IF EXISTS temp.{name}")
