"""Views and macros that hold calls: kept by the connection, written out where they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from relquery.connection import Connection, connect
from relquery.errors import QueryError, UnsupportedQueryError
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.fakes import FakeBackend

ANSWERS = "CREATE VIEW answers AS SELECT id, title, LLM('up', title) AS loud FROM films"
DEFINED = f"""
{ANSWERS};
CREATE VIEW v AS SELECT id, LLM('up', title) FROM films;
CREATE VIEW named(a, b) AS SELECT id, LLM('up', title) FROM films;
CREATE VIEW partly(a) AS SELECT id, LLM('up', title) AS u FROM films;
CREATE VIEW over_view AS SELECT id, LLM('len', loud) + 1 AS n FROM answers;
CREATE MACRO even(x) AS LLM('yes', x) = 'Yes';
CREATE VIEW over_macro AS SELECT id FROM films WHERE even(title);
CREATE MACRO loudest(n) AS TABLE SELECT max(loud) FROM answers WHERE id < n;
CREATE MACRO ask(question, x := 'none') AS LLM(question, x);
CREATE OR REPLACE TEMP MACRO shout(x) AS LLM('up', x || '!');
CREATE OR REPLACE TEMP VIEW passing AS SELECT LLM('up', title) AS loud FROM films;
CREATE MACRO good(x) AS AI_FILTER('yes', x);
CREATE VIEW judged AS SELECT good(title) AS g FROM films;
CREATE MACRO twice(x) AS x || x
"""


@pytest.fixture(scope="module")
def own() -> Iterator[Connection]:
    """A connection with these definitions, for queries that change nothing."""
    with connect(FakeBackend(upper_or_length), ledger=None) as con:
        con.database.execute(SETUP)
        con.sql(DEFINED)
        assert isinstance(con.backend, FakeBackend)
        assert con.backend.asked == []  # a view asks when it is read and only then
        yield con


def asked(con: Connection) -> list[str]:
    """The queries that were asked since the last look."""
    assert isinstance(con.backend, FakeBackend)
    found = con.backend.queries
    con.backend.asked.clear()
    return found


def test_a_definition_is_read_as_if_it_were_written_out(own: Connection) -> None:
    for query, rows in [
        ("FROM Answers SELECT answers.loud WHERE id = 6", [("DUNE",)]),
        ('SELECT a.loud FROM "answers" AS a JOIN reviews r ON r.film = a.id '
         "WHERE r.id = 12", [("AMELIE",)]),
        ("WITH x AS (SELECT * FROM answers) SELECT loud FROM x WHERE id = 6", [("DUNE",)]),
        ("WITH answers AS (SELECT 7 AS a) SELECT * FROM answers", [(7,)]),
        ("SELECT b FROM named WHERE a = 6", [("DUNE",)]),
        ("SELECT x, u FROM partly AS w(x) WHERE x = 6", [(6, "DUNE")]),
        ("SELECT n FROM over_view WHERE id = 6", [(5.0,)]),
        ("SELECT id FROM films WHERE even(title) ORDER BY id", [(2,), (3,), (5,), (6,)]),
        ("SELECT count(*) FROM over_macro", [(4,)]),
        ("SELECT * FROM loudest(3)", [("AMELIE",)]),
        ("SELECT ask('up', x := ask('up', 'a')), ask('up'), shout(shout('a' || 'b')), "
         "twice(LLM('up', 'a'))", [("A", "NONE", "AB!!", "AA")]),
        ("SELECT count(loud) FROM passing", [(6,)]),
    ]:  # fmt: skip
        assert own.sql(query).fetchall() == rows, query
    plain = own.database.connection.execute("SELECT twice('a')")
    assert plain.fetchall() == [("aa",)]  # a macro without calls stays DuckDB's


@pytest.mark.parametrize(
    ("query", "calls"),
    [
        ("SELECT * FROM answers WHERE id = 1", 1),
        ("SELECT * FROM answers LIMIT 2", 2),
        ("SELECT count(*) FROM answers WHERE loud = 'DUNE'", 5),
        ("SELECT id FROM films WHERE even(title) AND id <= 2", 2),
    ],
)
def test_a_definition_costs_what_it_costs_written_out(
    query: str, calls: int, own: Connection
) -> None:
    asked(own)
    own.sql(query)
    assert len(asked(own)) == calls


def test_columns_have_the_names_and_types_of_what_is_written(own: Connection) -> None:
    assert own.sql("SELECT * FROM v").columns == ["id", "llm('up', title)"]
    assert own.sql("SELECT \"llm('up', title)\" FROM v WHERE id = 6").fetchall() == [("DUNE",)]
    assert own.tables()["v"] == ["id", "llm('up', title)"]
    named = own.sql("SELECT even(title), even(genre) OR id > 1 FROM films")
    assert named.columns == ["even(title)", "(even(genre) OR (id > 1))"]
    stages = {stage.expression for stage in named.report.stages}
    assert stages == {"llm('yes', title)", "llm('yes', genre)"}  # the arguments of the macro
    asked(own)
    inner = "SELECT id, LLM('up', title) AS up, AI_SCORE('good', title) AS s FROM films"
    for query, wanted in [
        ("v", [("id", "INTEGER"), ("llm('up', title)", "VARCHAR")]),
        ("SELECT * FROM v", [("id", "INTEGER"), ("llm('up', title)", "VARCHAR")]),
        ("judged", [("g", "BOOLEAN")]),
        (f"WITH w AS ({inner}) SELECT * FROM w",
         [("id", "INTEGER"), ("up", "VARCHAR"), ("s", "DOUBLE")]),
    ]:  # fmt: skip
        assert [row[:2] for row in own.sql(f"DESCRIBE {query}").fetchall()] == wanted, query
    assert asked(own) == []


def test_what_cannot_be_is_refused_without_a_call(con: Connection, backend: FakeBackend) -> None:
    con.sql("CREATE VIEW v AS SELECT LLM('up', title) AS u FROM films")
    con.sql("CREATE MACRO one(x) AS LLM('up', x)")
    for statement, said in [
        ("CREATE VIEW v AS SELECT 1", "already exists"),
        ("CREATE VIEW v AS SELECT LLM('up', 1)", "already exists"),
        ("CREATE TABLE v (a INTEGER)", "already exists"),
        ("CREATE OR REPLACE TABLE v (a INTEGER)", "already exists"),
        ("CREATE VIEW films AS SELECT LLM('up', 1)", "already exists"),
        ("CREATE OR REPLACE VIEW films AS SELECT LLM('up', 1)", "is of type Table"),
        ("DROP TABLE v", "DROP VIEW v"),
        ("INSERT INTO v VALUES (1)", "is a view"),
        ("CREATE OR REPLACE VIEW v AS SELECT LLM('up', a) FROM v", "reads itself"),
        ("CREATE MACRO m(x) AS LLM('up', m(x))", "reads itself"),
        ("CREATE VIEW w AS SELECT LLM('up', titel) FROM films", "titel"),
        ("CREATE VIEW w(a, b) AS SELECT LLM('up', title) FROM films", "aliases"),
        ("CREATE VIEW w AS SELECT LLM('up', title, labels := 'x') FROM films", "labels"),
        ("CREATE VIEW w AS VALUES (LLM('up', 'x'))", "outside a SELECT"),
        ("CREATE MACRO m(x) AS LLM('up', y)", "y"),
        ("CREATE MACRO m(x INTEGER) AS LLM('up', x)", "Leave the type out"),
        ("CREATE MACRO m(x) AS LLM('up', x), (x, y) AS LLM('up', x, y)", "several forms"),
        ("CREATE MACRO lower(x) AS LLM('up', x)", "name of a function"),
        ("CREATE VIEW main.w AS SELECT LLM('up', 1)", "Leave the schema out"),
        ("SELECT one(1, 2)", "given 2 values"),
        ("SELECT one()", "no value for x"),
        ("SELECT one(x := 1, y := 2)", "no parameter y"),
        ("WITH films AS (SELECT 1 AS a) SELECT * FROM films, v", "Rename the entry"),
        ("UPDATE films SET title = v.u FROM v", "UPDATE with"),
        ("SUMMARIZE v", "SUMMARIZE with"),
        ("CREATE VIEW w AS SELECT u FROM v; CREATE OR REPLACE VIEW v AS SELECT LLM('up', u) AS u "
         "FROM w", "v reads w reads v"),
    ]:  # fmt: skip
        with pytest.raises(QueryError, match=said):
            con.sql(statement)
        assert backend.asked == [], statement
    assert con.sql("SELECT count(u) FROM v").fetchall() == [(6,)]


def test_if_exists_and_or_replace_do_as_in_duckdb(con: Connection) -> None:
    con.sql(ANSWERS)
    con.sql("CREATE VIEW IF NOT EXISTS answers AS SELECT LLM('up', 'no') AS loud")
    con.sql("CREATE TABLE IF NOT EXISTS answers (a INTEGER)")
    assert con.sql("SELECT count(loud) FROM answers").fetchall() == [(6,)]
    for value, loud in [("LLM('up', 'new')", "NEW"), ("'plain'", "plain"), ("LLM('up', 'x')", "X")]:
        con.sql(f"CREATE OR REPLACE VIEW answers AS SELECT {value} AS loud")
        assert con.sql("SELECT loud FROM answers").fetchall() == [(loud,)]
    con.sql("DROP VIEW answers; DROP VIEW IF EXISTS answers")
    with pytest.raises(QueryError, match="answers"):
        con.sql("FROM answers")


def test_a_macro_can_be_dropped(con: Connection) -> None:
    for drop, gone in [
        ("DROP MACRO m", "SELECT m(1)"),
        ("DROP FUNCTION IF EXISTS m", "SELECT m(1)"),
        ("DROP MACRO TABLE t", "SELECT * FROM t(1)"),
    ]:
        con.sql("CREATE OR REPLACE MACRO m(x) AS LLM('up', x)")
        con.sql("CREATE OR REPLACE MACRO t(x) AS TABLE SELECT LLM('up', x) AS u")
        con.sql(drop)
        with pytest.raises(QueryError):
            con.sql(gone)


def test_a_transaction_that_is_rolled_back_leaves_no_view(con: Connection) -> None:
    con.sql(f"BEGIN; {ANSWERS}; ROLLBACK")
    assert "answers" not in con.tables()
    con.sql(f"BEGIN; {ANSWERS}; COMMIT")
    con.sql("BEGIN; DROP VIEW answers; ROLLBACK")
    assert con.sql("SELECT count(*) FROM answers").fetchall() == [(6,)]


def test_tables_and_prepared_statements_read_a_view(con: Connection, tmp_path: Path) -> None:
    con.sql("CREATE VIEW v AS SELECT id, id AS film, LLM('up', title) AS text FROM films")
    con.sql("CREATE TABLE t AS FROM v; INSERT INTO reviews SELECT * FROM v WHERE id = 6")
    assert con.sql("SELECT text FROM t WHERE id = 6").fetchall() == [("DUNE",)]
    assert con.sql("SELECT text FROM reviews WHERE id = 6").fetchall() == [("DUNE",)]
    con.sql(f"COPY v TO '{tmp_path / 'v.csv'}'")
    assert con.sql(f"SELECT count(*) FROM '{tmp_path / 'v.csv'}'").fetchall() == [(6,)]
    con.sql("PREPARE p AS SELECT text FROM v WHERE id = $1")
    assert con.sql("EXECUTE p(2 * 3)").fetchall() == [("DUNE",)]
    con.sql("CREATE MACRO even(x) AS LLM('yes', x) = 'Yes'")
    con.sql("CREATE TABLE named AS SELECT id, even(title) FROM films")
    assert con.tables()["named"] == ["id", "even(title)"]


def test_nothing_is_left_in_a_connection_of_the_user() -> None:
    with duckdb.connect() as own:
        own.execute(SETUP)
        listing = (
            "SELECT view_name FROM duckdb_views() WHERE NOT internal UNION ALL "
            "SELECT function_name FROM duckdb_functions() WHERE NOT internal UNION ALL "
            "SELECT table_name FROM duckdb_tables() UNION ALL SELECT name FROM duckdb_variables() "
            "ORDER BY ALL"
        )
        with connect(FakeBackend(upper_or_length), database=own) as con:
            before = own.execute(listing).fetchall()
            con.sql(f"{ANSWERS}; CREATE MACRO m(x) AS LLM('up', x)")
            con.sql("SELECT m(loud), $v FROM answers", {"v": [1, None]})
            with pytest.raises(UnsupportedQueryError):
                con.sql("SUMMARIZE answers")
            assert own.execute(listing).fetchall() == before
