from __future__ import annotations

from collections.abc import Iterator

import pytest

from relquery.connection import Connection, connect
from tests.sql.conftest import SETUP
from tests.sql.fakes import FakeBackend
from tests.sql.functions.replies import ANSWERS, answer


@pytest.fixture
def backend() -> FakeBackend:
    ANSWERS.clear()
    return FakeBackend(answer)


@pytest.fixture
def con(backend: FakeBackend) -> Iterator[Connection]:
    with connect(backend, ledger=None) as connection:
        connection.database.execute(SETUP)
        yield connection
