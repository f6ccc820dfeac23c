"""A stand-in for a model whose answers each test sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relquery.connection import Connection
from relquery.prompt import Answer
from tests.sql.conftest import Lender
from tests.sql.fakes import FakeBackend, Fields


class Replies(dict[str, Any]):
    """The answer set for the first line of a prompt; else whether the title begins with A."""

    def __call__(self, query: str, fields: Fields) -> str | Answer:
        first = query.partition("\n")[0]
        if first in self:
            given = self[first]
            reply: str | Answer = given(fields) if callable(given) else given
            return reply
        is_row = isinstance(fields, dict)
        return "Yes" if is_row and str(fields.get("title")).startswith("A") else "No"


@pytest.fixture(scope="module")
def lender() -> Iterator[Lender]:
    lender = Lender(Replies())
    yield lender
    lender.close()


@pytest.fixture
def replies(con: Connection) -> Replies:
    """None yet."""
    assert isinstance(con.backend, FakeBackend)
    replies = con.backend.function
    assert isinstance(replies, Replies)
    replies.clear()
    return replies


@pytest.fixture
def backend(con: Connection, replies: Replies) -> FakeBackend:
    assert isinstance(con.backend, FakeBackend)
    return con.backend
