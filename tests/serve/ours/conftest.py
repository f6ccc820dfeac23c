"""A server with tables and a schema, and the same in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import httpx
import pytest

import relquery as rq
from relquery.connection import Connection
from tests.serve.conftest import Running, started

SCHEMA = """
<schema name="travel">
  <system>You plan travels. Answer in one sentence.</system>
  <user>
    <module name="plan">
      I want to travel for <param name="duration" len="4"/>.
      <union>
        <module name="home">I stay in my country and like lakes, forests and long walks.</module>
        <module name="abroad">I go to a city on another continent and like museums.</module>
      </union>
    </module>
  </user>
</schema>
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of tables, a schema, and a file that nobody may read."""
    folder = tmp_path_factory.mktemp("serve")
    (folder / "notes.csv").write_text("id,note\n1,A boat.\n2,A lake.\n3,A boat.\n")
    (folder / "secret.csv").write_text("word\nhidden\n")
    (folder / "schemas").mkdir()
    (folder / "schemas" / "travel.xml").write_text(SCHEMA)
    with duckdb.connect(str(folder / "shop.duckdb")) as shop:
        shop.execute("CREATE TABLE orders AS SELECT 1 AS id, 2.50::DECIMAL(5,2) AS price")
    return folder


@pytest.fixture(scope="session")
def ours(folder: Path) -> Iterator[Running]:
    """The demo model behind a server with tables and a schema."""
    tables = {
        "movies": "demo:movies",
        "notes": str(folder / "notes.csv"),
        "shop": str(folder / "shop.duckdb"),
    }
    with started(tables=tables, schemas=folder / "schemas") as found:
        yield found


@pytest.fixture
def client(ours: Running) -> Iterator[httpx.Client]:
    """A client of that server."""
    with httpx.Client(base_url=ours.url, timeout=120) as client:
        yield client


@pytest.fixture(scope="session")
def local() -> Iterator[Connection]:
    """The same model and table in this process."""
    with rq.connect("demo") as connection:
        connection.register("movies", rq.demo_table("movies"))
        yield connection
