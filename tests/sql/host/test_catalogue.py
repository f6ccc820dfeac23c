"""The list of functions is read again where it may have changed, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import relquery as rq
from relquery.sql.host import catalog
from tests.sql.fakes import FakeBackend

QUERY = "SELECT shout(LLM('q', a)) AS s FROM (VALUES ('x')) AS t(a)"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever DuckDB is asked for its list."""
    counted, listed = list[int](), catalog._listed

    def count(connection: Any) -> Iterator[catalog.ListedFunction]:
        counted.append(1)
        return listed(connection)

    monkeypatch.setattr(catalog, "_listed", count)
    return counted


def connected(database: Any = ":memory:") -> rq.Connection:
    return rq.connect(FakeBackend(lambda query, fields: "Yes"), database=database)


def value(con: rq.Connection) -> object:
    return next(iter(con.sql(QUERY)))[0]


def macros(con: rq.Connection) -> set[str]:
    con.sql("SELECT 1")
    return con.database.macros()


def test_macros_are_seen_when_they_are_created_replaced_and_dropped() -> None:
    with connected() as con:
        con.sql("CREATE MACRO shout(x) AS upper(x)")
        assert value(con) == "YES"
        con.sql("CREATE OR REPLACE MACRO shout(x) AS x || '!'")
        assert value(con) == "Yes!"
        con.sql("DROP MACRO shout")
        assert "shout" not in macros(con)


def test_macros_are_gone_when_their_transaction_is_rolled_back() -> None:
    with connected() as con:
        con.sql("BEGIN")
        con.sql("CREATE MACRO shout(x) AS upper(x)")
        assert value(con) == "YES"
        con.sql("ROLLBACK")
        assert "shout" not in macros(con)


def test_macros_of_attached_databases_and_schemas_are_seen(tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "other.db") as other:
        other.execute("CREATE MACRO shout(x) AS upper(x)")
    with connected() as con:
        assert macros(con) == set()
        con.sql(f"ATTACH '{tmp_path / 'other.db'}' AS other")
        assert macros(con) == {"shout"}
        con.sql("DETACH other")
        assert macros(con) == set()
        con.sql("CREATE SCHEMA s")
        con.sql("CREATE MACRO s.shout(x) AS upper(x)")
        assert macros(con) == {"shout"}
        con.sql("DROP SCHEMA s CASCADE")
        assert macros(con) == set()


@pytest.mark.parametrize("in_file", [False, True])
def test_macros_that_others_create_are_seen(in_file: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "own.db") if in_file else ":memory:"
    with duckdb.connect(path) as own, connected(path if in_file else own) as con:
        assert macros(con) == set()
        own.execute("CREATE MACRO shout(x) AS upper(x)")
        assert value(con) == "YES"
        own.execute("CREATE OR REPLACE MACRO shout(x) AS x || '!'")
        assert value(con) == "Yes!"


def test_the_list_is_read_once_while_nothing_changes_it(read: list[int]) -> None:
    with connected() as con:
        con.sql("CREATE MACRO shout(x) AS upper(x)")
        value(con)
        read.clear()
        for _ in range(3):
            value(con)
        assert not read


def test_new_databases_in_memory_share_the_list(read: list[int]) -> None:
    connected().close()
    read.clear()
    with connected() as con:
        con.sql("SELECT abs(length(LLM('q', a))) FROM (VALUES ('x')) AS t(a)")
    assert not read
