from pathlib import Path

import pytest

from relquery.connection import Connection
from relquery.errors import PartialResultWarning, QueryError
from tests.sql.fakes import FakeBackend

UP = "SELECT id, LLM('up', title) AS up FROM films"


@pytest.fixture
def places(con: Connection) -> Connection:
    con.sql("CREATE SCHEMA s")
    con.sql("CREATE TABLE s.There AS SELECT 1 AS a")
    con.sql("CREATE TEMP TABLE passing AS SELECT 1 AS a")
    con.sql("CREATE VIEW seen AS SELECT 1 AS a")
    con.sql("ATTACH ':memory:' AS other")
    con.sql("CREATE TABLE other.far AS SELECT 1 AS a")
    return con


def test_a_statement_that_must_fail_does_before_its_calls(
    places: Connection, backend: FakeBackend
) -> None:
    for statement, message in [
        (f"CREATE TABLE films AS {UP}", "CREATE OR REPLACE TABLE films"),
        (f"CREATE TABLE FILMS AS {UP}", "already exists"),
        (f"CREATE TABLE s.there AS {UP}", "s.there already exists"),
        (f"CREATE TABLE memory.s.there AS {UP}", "already exists"),
        (f"CREATE TEMP TABLE passing AS {UP}", "already exists"),
        (f"CREATE TABLE seen AS {UP}", "already exists"),
        (f"CREATE TABLE other.far AS {UP}", "already exists"),
        (f"CREATE TABLE nowhere.t AS {UP}", "nowhere"),
        (f"INSERT INTO nowhere {UP}", "nowhere"),
        (f"INSERT INTO films {UP}", "7 columns"),
        (f"INSERT INTO reviews (id, nope) {UP}", "nope"),
        (f"INSERT INTO reviews BY NAME {UP}", "up"),
        (f"COPY ({UP}) TO '/nowhere/up.csv'", "the folder /nowhere does not exist"),
        (f"COPY ({UP}) TO 'up.csv' (FORMAT nope)", "nope"),
    ]:
        with pytest.raises(QueryError, match=message) as caught:
            places.sql(statement)
        assert not backend.asked, statement
        assert "_rq_" not in str(caught.value)


def test_a_table_of_the_same_name_elsewhere_is_another(places: Connection, tmp_path: Path) -> None:
    for name in ("memory.main.passing", "s.films", "There", "other.films"):
        places.sql(f"CREATE TABLE {name} AS {UP}")
        assert places.sql(f"SELECT up FROM {name} WHERE id = 6").fetchall() == [("DUNE",)]
    places.sql(f"CREATE OR REPLACE TABLE reviews AS {UP}")
    assert places.sql("SELECT up FROM reviews WHERE id = 6").fetchall() == [("DUNE",)]
    places.sql(f"COPY ({UP}) TO '{tmp_path}/up.csv'")
    assert "DUNE" in (tmp_path / "up.csv").read_text()


def test_a_table_that_is_there_is_asked_nothing_for(con: Connection, backend: FakeBackend) -> None:
    con.sql(f"CREATE TABLE IF NOT EXISTS films AS {UP}")
    assert not backend.asked
    assert not con.sql(f"EXPLAIN CREATE TABLE IF NOT EXISTS films AS {UP}").fetchall()
    assert con.sql("SELECT count(*) FROM films").fetchall() == [(6,)]
    con.sql(f"CREATE TABLE IF NOT EXISTS fresh AS {UP}")
    assert con.sql("SELECT up FROM fresh WHERE id = 6").fetchall() == [("DUNE",)]


def test_columns_of_any_name_and_type_can_be_written(con: Connection) -> None:
    query = """SELECT LLM('up', title) AS "o""k", info AS "a b", {'x y': 1, 'z': [1.5]} AS "a b",
        'a'::ENUM('a', 'b c') AS e, map([1], ['x']) AS m, 1::DECIMAL(9, 3) AS d FROM films"""
    con.sql(f"CREATE TABLE wide AS {query}")
    con.sql(f"INSERT INTO wide {query}")
    assert con.sql("SELECT count(*) FROM wide").fetchall() == [(12,)]


def test_a_table_without_data_asks_nothing_and_has_its_columns(
    con: Connection, backend: FakeBackend, capfd: pytest.CaptureFixture[str]
) -> None:
    for at, query in enumerate([UP, f"({UP})", f"WITH f AS (SELECT * FROM films) {UP}"]):
        for name, columns in ((f"plain{at}", ["id", "up"]), (f"o{at}(x, y)", ["x", "y"])):
            con.sql(f"CREATE TABLE {name} AS {query} WITH NO DATA")
            assert con.tables()[name.partition("(")[0]] == columns
    assert con.sql("EXPLAIN CREATE TABLE p AS SELECT LLM('up', 1) WITH NO DATA").fetchall() == []
    assert not backend.asked
    assert con.sql("SELECT count(*) FROM plain0, o0").fetchall() == [(0,)]
    con.sql(f"CREATE OR REPLACE TABLE plain0 AS {UP} WITH DATA")
    assert con.sql("SELECT up FROM plain0 WHERE id = 6").fetchall() == [("DUNE",)]
    assert capfd.readouterr().err == ""  # what sqlglot cannot write, it says there


def test_columns_without_a_name_are_named_as_duckdb_names_them(con: Connection) -> None:
    items = "LLM('up', title), upper(LLM('up', \"id\") || ')''('), LLM('len', LLM('up', id)) + 1"
    con.sql(f"CREATE TABLE o AS SELECT {items} FROM films WHERE id = 1")
    names = [
        "llm('up', title)",
        "upper((llm('up', \"id\") || ')''('))",
        "(llm('len', LLM('up', id)) + 1)",
    ]
    assert con.tables()["o"] == names
    assert con.sql(f"SELECT {items} FROM films WHERE id = 1").columns == names


def test_an_aggregate_of_answers_that_fits_no_column_is_null_there(con: Connection) -> None:
    con.sql("CREATE TABLE days (day DATE)")
    with pytest.warns(PartialResultWarning, match="value of type DATE"):
        result = con.sql("INSERT INTO days SELECT max(LLM('up', id)) FROM films")
    assert con.sql("FROM days").fetchall() == [(None,)]
    assert [error.text for error in result.errors] == ["6"]
    assert "_rq_" not in result.errors[0].error


def test_what_is_made_has_the_columns_of_its_query(con: Connection) -> None:
    for query, kind in [
        ("SELECT id::VARCHAR, if(id > 1, 1, 2), LLM('up', title), -id FROM films", "VIEW"),
        ("SELECT genre, list(id), max(LLM('up', id)) FROM films GROUP BY genre", "TABLE"),
        ("(SELECT id::VARCHAR FROM films) UNION ALL SELECT LLM('up', id) FROM films", "TABLE"),
        ("WITH a AS (SELECT id::VARCHAR AS k FROM films) SELECT k || 'x', LLM('up', k) FROM a",
         "VIEW"),
        ("SELECT *, LLM('up', id) FROM films", "TABLE"),
    ]:  # fmt: skip
        names = con.sql(query).columns
        con.sql(f"CREATE OR REPLACE {kind} made{kind} AS {query}")
        assert con.sql(f"SELECT * FROM made{kind}").columns == names
