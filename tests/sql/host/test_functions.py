"""Python functions belong to a connection of ours, whatever other connections there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from relquery.connection import Connection, connect
from relquery.prompt import Prompt
from tests.retrieval.fakes import Letters
from tests.sql.conftest import upper_or_length
from tests.sql.fakes import FakeBackend

Pair = tuple[Connection, Connection]


@dataclass(slots=True)
class Counting(FakeBackend):
    """Each text has 7 tokens."""

    def runs(self, prompt: Prompt) -> Any:
        return [tuple(range(7))]


def words(database: object) -> Connection:
    return connect(FakeBackend(upper_or_length), database=database, ledger=None)  # type: ignore[arg-type]


def letters(database: object) -> Connection:
    backend = Counting(upper_or_length)
    return connect(backend, database=database, embedder=Letters(), ledger=None)  # type: ignore[arg-type]


def of_a_file(folder: Path) -> Pair:
    file = folder / "some.duckdb"
    return words(file), letters(file)


def of_cursors(folder: Path) -> Pair:
    own = duckdb.connect()
    return words(own), letters(own.cursor())


def of_one_connection(folder: Path) -> Pair:
    own = duckdb.connect()
    return words(own), letters(own)


def rows(con: Connection, query: str) -> list[tuple[object, ...]]:
    return con.sql(query).fetchall()


OPENED = [of_a_file, of_cursors, of_one_connection]


@pytest.mark.parametrize(
    "opened", [of_a_file, of_one_connection, pytest.param(of_cursors, marks=pytest.mark.long)]
)
def test_two_connections_to_one_database_each_call_their_own(
    opened: Callable[[Path], Pair], tmp_path: Path
) -> None:
    first, second = opened(tmp_path)
    first.sql("CREATE TABLE docs AS SELECT 'old cat' AS text")
    second.sql("CREATE TABLE more AS SELECT unnest(['tac', 'dog']) AS text")
    own = "SELECT AI_COUNT_TOKENS('four'), len(AI_EMBED('a')), passages('docs', 'cat', 1)"
    for _ in range(2):
        assert rows(first, own) == [(1, 1024, ["old cat"])]
        assert rows(second, own) == [(7, 26, ["old cat"])]
        assert rows(first, "SELECT passages('more', 'act', 1)") == [([],)]
        assert rows(second, "SELECT passages('more', 'act', 1)") == [(["tac"],)]
    assert rows(first, "SELECT LLM('up', text) FROM docs") == [("OLD CAT",)]
    assert rows(second, "SELECT LLM('up', text) FROM docs") == [("OLD CAT",)]


@pytest.mark.parametrize("opened", OPENED)
def test_a_connection_goes_on_when_another_is_closed(
    opened: Callable[[Path], Pair], tmp_path: Path
) -> None:
    first, second = opened(tmp_path)
    second.close()
    assert rows(first, "SELECT AI_COUNT_TOKENS('four'), AI_SIMILARITY('a', 'a')") == [(1, 1.0)]


def test_a_transaction_survives_that_another_connection_has_been_closed() -> None:
    first, second = of_one_connection(Path())
    first.sql("CREATE TABLE t (a INTEGER); BEGIN; INSERT INTO t VALUES (1)")
    second.close()
    assert rows(first, "SELECT a, AI_SIMILARITY('a', 'a') FROM t") == [(1, 1.0)]
    assert rows(first, "COMMIT; FROM t") == [(1,)]


def test_a_connection_leaves_none_of_its_functions_behind() -> None:
    with duckdb.connect() as own:
        words(own).close()
        listed = "SELECT function_name FROM duckdb_functions() WHERE function_name ~ 'ai_|passages'"
        assert own.sql(listed).fetchall() == []


def test_a_macro_that_a_database_has_stands() -> None:
    with duckdb.connect() as own:
        own.execute("CREATE MACRO ai_count_tokens(a) AS a + 1; CREATE MACRO passages(a) AS a + 2")
        with words(own) as con:
            assert rows(con, "SELECT AI_COUNT_TOKENS(1), passages(1), AI_SIMILARITY('a', 'a')") == [
                (2, 3, 1.0)
            ]


def test_a_macro_that_is_created_later_takes_the_place_of_a_function() -> None:
    with words(":memory:") as con:
        con.sql("CREATE MACRO passages(a) AS a + 1")
        assert rows(con, "SELECT passages(1)") == [(2,)]
        con.sql("CREATE TEMP MACRO AI_EMBED(a) AS a + 2")
        assert rows(con, "SELECT AI_EMBED(1), AI_SIMILARITY('a', 'a')") == [(3, 1.0)]
