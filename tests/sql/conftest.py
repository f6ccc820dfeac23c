"""Fixtures of the SQL tests: a small database, a fake backend, and a DuckDB reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

from relquery.connection import Connection, connect
from relquery.prompt import Answer, Finish
from tests.sql.fakes import Asked, FakeBackend, Fields, Function

SETUP = """
CREATE TABLE films (id INTEGER, title VARCHAR, genre VARCHAR, stars DOUBLE, seen BOOLEAN,
                    tags VARCHAR[], info STRUCT(year INTEGER, lang VARCHAR));
INSERT INTO films VALUES
    (1, 'Alien',  'horror', 4.5, true,  ['space', 'ship'], {'year': 1979, 'lang': 'en'}),
    (2, 'Amelie', 'comedy', 4.0, false, ['paris'],         {'year': 2001, 'lang': 'fr'}),
    (3, 'Brazil', 'comedy', 3.5, true,  [],                {'year': 1985, 'lang': 'en'}),
    (4, 'Alien',  'horror', 4.5, false, ['space', 'ship'], {'year': 1979, 'lang': 'en'}),
    (5, NULL,     'drama',  NULL, NULL, NULL,              NULL),
    (6, 'Dune',   'drama',  2.5, true,  ['sand'],          {'year': 2021, 'lang': 'en'});
CREATE TABLE reviews (id INTEGER, film INTEGER, text VARCHAR);
INSERT INTO reviews VALUES (10, 1, 'great'), (11, 1, 'scary'), (12, 2, 'sweet'), (13, 6, 'long'),
    (14, 9, 'lost');
CREATE TABLE empty (id INTEGER, text VARCHAR);
"""


def upper_or_length(query: str, fields: Fields) -> str:
    """'up': the fields' values in upper case; 'len': their length; 'yes': 'Yes' if it is even."""
    text = "|".join(_written(fields[name]) for name in sorted(fields))
    match query:
        case "up":
            return text.upper()
        case "len":
            return str(len(text))
        case "yes":
            return "Yes" if len(text) % 2 == 0 else "No"
    return query


def fails_for_dune(query: str, fields: Fields) -> str | Answer:
    """The same, but one title cannot be served."""
    if fields.get("title") == "Dune":
        return Answer(None, Finish.ERROR, "out of spice")
    return upper_or_length(query, fields)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


# The same function in SQL, for up to two fields given in the order of their names.
MACROS = """
CREATE MACRO llm_text(a) AS CAST(a AS VARCHAR), (a, b) AS CASE WHEN a IS NOT NULL OR b IS NOT NULL
    THEN coalesce(CAST(a AS VARCHAR), 'null') || '|' || coalesce(CAST(b AS VARCHAR), 'null') END;
CREATE MACRO llm_up(a) AS upper(llm_text(a)), (a, b) AS upper(llm_text(a, b));
CREATE MACRO llm_len(a) AS CAST(length(llm_text(a)) AS DOUBLE),
    (a, b) AS CAST(length(llm_text(a, b)) AS DOUBLE);
CREATE MACRO llm_yes(a) AS CASE length(llm_text(a)) % 2 WHEN 0 THEN 'Yes' WHEN 1 THEN 'No' END,
    (a, b) AS CASE length(llm_text(a, b)) % 2 WHEN 0 THEN 'Yes' WHEN 1 THEN 'No' END;
"""


def reference_sql(query: str) -> str:
    """The query with its calls as SQL."""
    return re.sub(r"(?i)\bllm\('(up|len|yes)',\s*", r"llm_\1(", query)


def opened(backend: Any = None, setup: str = SETUP, **settings: Any) -> Connection:
    """A connection to the tables of the SQL tests, without a ledger unless one is given."""
    backend = backend or FakeBackend(upper_or_length)
    connection = connect(backend, **{"ledger": None} | settings)
    connection.database.execute(f"SET threads = 1; {setup}")  # a few rows need no more
    return connection


def asked_of(connection: Connection) -> list[Asked]:
    """What the model of a connection is asked from now on."""
    assert isinstance(connection.backend, FakeBackend)
    connection.backend.asked.clear()
    return connection.backend.asked


class Lender:
    """Lends one connection to test after test: a new one after a test that left a trace in it."""

    def __init__(self, function: Function, setup: str = SETUP) -> None:
        self.function, self.setup = function, setup
        self.connection: Connection | None = None
        self.state: object = None

    def lend(self) -> Connection:
        """With a backend that is as new."""
        if self.connection is None:
            self.connection = opened(FakeBackend(self.function), self.setup)
            self.state = self._look(self.connection)
        backend = self.connection.backend
        assert isinstance(backend, FakeBackend)
        backend.function, backend.reverse, backend.brief = self.function, False, True
        backend.asked.clear()
        return self.connection

    def take_back(self) -> None:
        if self.connection is not None and self._look(self.connection) != self.state:
            self.close()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def _look(self, connection: Connection) -> object:
        """What tests may change."""
        listed = "SELECT count(*), sum(estimated_size) FROM duckdb_tables()"
        prepared = "SELECT count(*) FROM duckdb_prepared_statements()"
        database = connection.database
        try:
            counts = [database.connection.execute(one).fetchone() for one in (listed, prepared)]
        except duckdb.Error:  # closed, or in a transaction that has failed
            return None
        return counts, connection.tables(), database.macros(), list(database.kept.definitions)


@pytest.fixture(scope="session")
def lender() -> Iterator[Lender]:
    lender = Lender(upper_or_length)
    yield lender
    lender.close()


@pytest.fixture
def con(lender: Lender) -> Iterator[Connection]:
    yield lender.lend()
    lender.take_back()


@pytest.fixture
def backend(con: Connection) -> FakeBackend:
    """That of the connection, which has not been asked yet."""
    assert isinstance(con.backend, FakeBackend)
    return con.backend


@pytest.fixture(scope="session")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database of plain DuckDB, for queries that change nothing."""
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def reference() -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Runs a query that changes nothing in plain DuckDB."""
    connection = duckdb.connect()
    connection.execute(SETUP)
    connection.execute(MACROS)
    yield lambda query: connection.execute(reference_sql(query)).fetchall()
    connection.close()
