"""A client of the server, and the same model in this process."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import relquery as rq
from relquery.connection import Connection
from tests.serve.conftest import Running


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client


@pytest.fixture(scope="session")
def local() -> Iterator[Connection]:
    with rq.connect("demo") as connection:
        connection.register("movies", rq.demo_table("movies"))
        yield connection
