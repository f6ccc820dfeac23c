"""Only statements that read the registered tables can be run, however they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relquery.connection import Connection, connect
from relquery.errors import ConfigError, SqlSyntaxError, TableError
from relquery.serve.errors import HttpError
from relquery.serve.sql_workers.tables import MOST_CHARACTERS, Tables, check_reads
from tests.sql.fakes import FakeBackend


def listed(name: str) -> list[str]:
    """The statements of a file, one a line."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    return [line.replace("\\n", "\n") for line in lines]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    file = tmp_path_factory.mktemp("tables") / "notes.csv"
    file.write_text("id,note\n1,A boat.\n2,A lake.\n")
    found = Tables({"notes": str(file)}, "1GB")
    found.begin(threads=2)
    yield found
    found.close()


@pytest.fixture(scope="module")
def connection(tables: Tables) -> Iterator[Connection]:
    backend = FakeBackend(lambda query, fields: "Yes")
    cursor = tables.cursor()
    with connect(backend, database=cursor, ledger=None) as found:
        yield found
    cursor.close()


def test_statements_that_read_are_allowed_and_run(connection: Connection, tables: Tables) -> None:
    for query in listed("allowed.txt"):
        check_reads(query, connection.database, tables.all)
        connection.sql(query)


def test_everything_else_is_refused(connection: Connection, tables: Tables) -> None:
    for query in listed("refused.txt"):
        with pytest.raises((HttpError, SqlSyntaxError)) as refused:
            check_reads(query, connection.database, tables.all)
        assert getattr(refused.value, "status", 400) in (400, 403), query


def test_what_can_be_mended_is_told(connection: Connection, tables: Tables) -> None:
    long = "SELECT 1" + " " * MOST_CHARACTERS
    for query, said in (("SELECT * FROM note", "Did you mean 'notes'"), (long, "characters")):
        with pytest.raises(HttpError, match=said):
            check_reads(query, connection.database, tables.all)


UNREACHED = r"(?i)disabled|locked|exist"


def test_the_database_reaches_nothing_even_unchecked(tables: Tables, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("word\nhidden\n")
    for query in listed("reaching.txt"):
        with tables.cursor() as cursor, pytest.raises(Exception, match=UNREACHED):
            cursor.execute(query.format(file=file)).fetchall()
    assert [each.name for each in tmp_path.iterdir()] == ["secret.csv"]


def test_no_variable_of_the_program_is_a_table(tables: Tables) -> None:
    hidden = {"a": [1]}
    with tables.cursor() as cursor, pytest.raises(Exception, match="hidden"):
        cursor.execute("FROM hidden").fetchall()
    assert hidden


def test_files_become_tables_in_memory(folder: Path) -> None:
    given = {"my notes": str(folder / "notes.csv"), "shop": str(folder / "shop.duckdb")}
    tables = Tables(given, "1GB")
    orders = (("id", "INTEGER"), ("price", "DECIMAL(5,2)"))
    shown = {(each.schema, each.name): (each.columns, each.rows) for each in tables.all}
    assert shown == {
        ("main", "my notes"): ((("id", "BIGINT"), ("note", "VARCHAR")), 3),
        ("main", "orders"): (orders, 1),
        ("shop", "orders"): (orders, 1),
    }
    with tables.cursor() as cursor:
        assert cursor.execute('SELECT count(*) FROM "my notes"').fetchall() == [(3,)]
        first, second = (cursor.execute(f"FROM {at}orders").fetchall() for at in ("", "shop."))
        assert first == second
    tables.close()


def test_what_cannot_be_read_says_which_table(folder: Path) -> None:
    for tables, memory, error, said in (
        ({"gone": str(folder / "gone.csv")}, "1GB", TableError, "Table 'gone'"),
        ({"films": "demo:film"}, "1GB", TableError, "demo table"),
        ({}, "much", ConfigError, "sql_memory"),
    ):
        with pytest.raises(error, match=said):
            Tables(tables, memory)
