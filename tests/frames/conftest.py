"""A connection whose model is a function, with functions for near texts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relquery.connection import Connection, connect
from tests.frames.model import answer
from tests.frames.near import install
from tests.sql.fakes import FakeBackend


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(answer)


@pytest.fixture
def con(backend: FakeBackend) -> Iterator[Connection]:
    with connect(backend, ledger=None) as connection:
        install(connection)
        yield connection
