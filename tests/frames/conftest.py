"""A connection whose model is a function, with functions for near texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from relquery.connection import Connection, connect
from tests.frames.model import answer
from tests.frames.near import install
from tests.sql.fakes import FakeBackend


@contextmanager
def lent() -> Iterator[Connection]:
    with connect(FakeBackend(answer), ledger=None) as connection:
        install(connection)
        yield connection


@pytest.fixture(scope="module")
def shared() -> Iterator[Connection]:
    with lent() as connection:
        yield connection


@pytest.fixture
def con(shared: Connection) -> Connection:
    """One for all tests of a file, which has not been asked yet."""
    backend = shared.backend
    assert isinstance(backend, FakeBackend)
    backend.asked.clear()
    return shared


@pytest.fixture
def backend(con: Connection) -> FakeBackend:
    assert isinstance(con.backend, FakeBackend)
    return con.backend


@pytest.fixture
def fresh() -> Iterator[Connection]:
    """One of a test's own, without tables."""
    with lent() as connection:
        yield connection
