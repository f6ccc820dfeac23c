"""The fixtures of tests/sql/conftest.py with one database for all tests, which change no table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relquery.connection import Connection, connect
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.fakes import FakeBackend

__all__ = ["backend", "con", "shared"]


@pytest.fixture(scope="session")
def shared() -> Iterator[tuple[Connection, FakeBackend]]:
    backend = FakeBackend(upper_or_length)
    with connect(backend, ledger=None) as connection:
        connection.database.execute(SETUP)
        yield connection, backend


@pytest.fixture
def backend(shared: tuple[Connection, FakeBackend]) -> FakeBackend:
    """As new."""
    _, backend = shared
    backend.function, backend.reverse, backend.brief = upper_or_length, False, True
    backend.asked.clear()
    return backend


@pytest.fixture
def con(shared: tuple[Connection, FakeBackend], backend: FakeBackend) -> Connection:
    return shared[0]
