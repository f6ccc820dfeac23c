from __future__ import annotations

from collections.abc import Iterator

import pytest

from relquery.connection import Connection, connect
from tests.sql.conftest import SETUP, own_backend
from tests.sql.fakes import FakeBackend
from tests.sql.functions.replies import ANSWERS, answer


@pytest.fixture(scope="module")
def opened() -> Iterator[Connection]:
    with connect(FakeBackend(answer), ledger=None) as connection:
        connection.database.execute(SETUP)
        yield connection


@pytest.fixture
def backend(opened: Connection) -> FakeBackend:
    ANSWERS.clear()
    return own_backend(opened)


@pytest.fixture
def con(opened: Connection, backend: FakeBackend) -> Connection:
    return opened
