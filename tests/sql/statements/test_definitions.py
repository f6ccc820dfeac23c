"""Views and macros that hold calls: kept by the connection, written out where they are read."""

from __future__ import annotations

import duckdb
import pytest

from relquery.connection import Connection, connect
from relquery.errors import QueryError, UnsupportedQueryError
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.fakes import FakeBackend

ANSWERS = "CREATE VIEW answers AS SELECT id, title, LLM('up', title) AS loud FROM films"


@pytest.mark.parametrize(
    ("define", "query", "rows"),
    [
        (ANSWERS, "SELECT loud FROM answers WHERE id = 6", [("DUNE",)]),
        (ANSWERS, "FROM Answers SELECT answers.loud LIMIT 1", [("ALIEN",)]),
        (ANSWERS, 'SELECT a.loud FROM "answers" AS a JOIN reviews r ON r.film = a.id '
         "WHERE r.id = 12", [("AMELIE",)]),
        (ANSWERS, "WITH x AS (SELECT * FROM answers) SELECT loud FROM x WHERE id = 6", [("DUNE",)]),
        (ANSWERS, "WITH answers AS (SELECT 7 AS a) SELECT * FROM answers", [(7,)]),
        ("CREATE VIEW v(a, b) AS SELECT id, LLM('up', title) FROM films",
         "SELECT b FROM v WHERE a = 6", [("DUNE",)]),
        ("CREATE VIEW v(a) AS SELECT id, LLM('up', title) AS u FROM films",
         "SELECT x, u FROM v AS w(x) WHERE x = 6", [(6, "DUNE")]),
        (f"{ANSWERS}; CREATE VIEW v AS SELECT id, LLM('len', loud) + 1 AS n FROM answers",
         "SELECT n FROM v WHERE id = 6", [(5.0,)]),
        ("CREATE MACRO even(x) AS LLM('yes', x) = 'Yes'",
         "SELECT id FROM films WHERE even(title) ORDER BY id", [(2,), (3,), (5,), (6,)]),
        ("CREATE MACRO even(x) AS LLM('yes', x) = 'Yes'; "
         "CREATE VIEW v AS SELECT id FROM films WHERE even(title)",
         "SELECT count(*) FROM v", [(4,)]),
        (f"{ANSWERS}; CREATE MACRO loudest(n) AS TABLE SELECT max(loud) FROM answers WHERE id < n",
         "SELECT * FROM loudest(3)", [("AMELIE",)]),
        ("CREATE MACRO ask(question, x := 'none') AS LLM(question, x)",
         "SELECT ask('up', x := ask('up', 'a')), ask('up')", [("A", "NONE")]),
        ("CREATE OR REPLACE TEMP MACRO shout(x) AS LLM('up', x || '!')",
         "SELECT shout(shout('a' || 'b'))", [("AB!!",)]),
        (f"CREATE OR REPLACE TEMP {ANSWERS[7:]}", "SELECT count(loud) FROM answers", [(6,)]),
    ],
)  # fmt: skip
def test_a_definition_is_read_as_if_it_were_written_out(define, query, rows, con) -> None:
    con.sql(define)
    assert con.sql(query).fetchall() == rows


def test_a_view_asks_when_it_is_read_and_only_then(con: Connection, backend: FakeBackend) -> None:
    con.sql(ANSWERS)
    assert backend.asked == []
    con.sql("SELECT count(*) FROM answers WHERE loud = 'DUNE'")
    assert len(backend.asked) == 5


@pytest.mark.parametrize(
    ("over_view", "over_subquery"),
    [
        ("SELECT * FROM v WHERE id = 1", "SELECT * FROM (SELECT id, LLM('up', title) AS u FROM "
         "films) AS v WHERE id = 1"),
        ("SELECT * FROM v LIMIT 2", "SELECT * FROM (SELECT id, LLM('up', title) AS u FROM films) "
         "AS v LIMIT 2"),
        ("SELECT id FROM films WHERE id < 3 AND even(title)",
         "SELECT id FROM films WHERE id < 3 AND (LLM('yes', title) = 'Yes')"),
    ],
)  # fmt: skip
def test_a_definition_costs_what_it_costs_written_out(over_view, over_subquery, con, backend):
    con.sql("CREATE VIEW v AS SELECT id, LLM('up', title) AS u FROM films")
    con.sql("CREATE MACRO even(x) AS LLM('yes', x) = 'Yes'")
    rows = con.sql(over_view).fetchall()
    calls = len(backend.asked)
    assert con.sql(over_subquery).fetchall() == rows
    assert len(backend.asked) == 2 * calls > 0


def test_a_macro_in_a_condition_asks_only_for_the_rows_left(con, backend) -> None:
    con.sql("CREATE MACRO even(x) AS LLM('yes', x) = 'Yes'")
    con.sql("SELECT id FROM films WHERE even(title) AND id <= 2")
    assert len(backend.asked) == 2


def test_columns_have_the_names_of_what_is_written(con: Connection) -> None:
    con.sql("CREATE VIEW v AS SELECT id, LLM('up', title) FROM films")
    con.sql("CREATE MACRO even(x) AS LLM('yes', x) = 'Yes'")
    assert con.sql("SELECT * FROM v").columns == ["id", "llm('up', title)"]
    assert con.sql("SELECT \"llm('up', title)\" FROM v WHERE id = 6").fetchall() == [("DUNE",)]
    assert con.sql("SELECT even(title), even(genre) OR id > 1 FROM films").columns == [
        "even(title)",
        "(even(genre) OR (id > 1))",
    ]
    con.sql("CREATE TABLE t AS SELECT id, even(title) FROM films")
    assert con.tables()["t"] == ["id", "even(title)"]
    assert con.tables()["v"] == ["id", "llm('up', title)"]


def test_the_report_shows_the_arguments_of_a_macro(con: Connection, backend: FakeBackend) -> None:
    con.sql("CREATE MACRO even(x) AS LLM('yes', x) = 'Yes'")
    report = con.sql("SELECT id FROM films WHERE even(title) AND even(genre)").report
    assert {stage.expression for stage in report.stages} == {
        "llm('yes', title)",
        "llm('yes', genre)",
    }
    assert {tuple(request.fields) for request in backend.asked} == {("title",), ("genre",)}


def test_a_function_keeps_its_type_in_a_definition(con: Connection) -> None:
    con.sql(
        "CREATE MACRO good(x) AS AI_FILTER('yes', x);"
        "CREATE VIEW v AS SELECT good(title) AS g FROM films"
    )
    described = con.sql("DESCRIBE v").fetchall()
    assert [row[:2] for row in described] == [("g", "BOOLEAN")]


def test_describe_names_calls_as_written(con: Connection, backend: FakeBackend) -> None:
    con.sql(
        "CREATE VIEW v AS SELECT id, LLM('up', title), LLM('len', title) > 3 AS long FROM films"
    )
    named = [("id", "INTEGER"), ("llm('up', title)", "VARCHAR"), ("long", "BOOLEAN")]
    assert [row[:2] for row in con.sql("DESCRIBE v").fetchall()] == named
    assert [row[:2] for row in con.sql("DESCRIBE SELECT * FROM v").fetchall()] == named
    inner = "SELECT id, LLM('up', title) AS up, AI_SCORE('good', title) AS s FROM films"
    described = con.sql(f"DESCRIBE WITH w AS ({inner}) SELECT * FROM w").fetchall()
    assert [row[:2] for row in described] == [("id", "INTEGER"), ("up", "VARCHAR"), ("s", "DOUBLE")]
    assert backend.asked == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE VIEW v AS SELECT 1", "already exists"),
        ("CREATE VIEW v AS SELECT LLM('up', 1)", "already exists"),
        ("CREATE TABLE v (a INTEGER)", "already exists"),
        ("CREATE OR REPLACE TABLE v (a INTEGER)", "already exists"),
        ("CREATE VIEW films AS SELECT LLM('up', 1)", "already exists"),
        ("CREATE OR REPLACE VIEW films AS SELECT LLM('up', 1)", "is of type Table"),
        ("DROP TABLE v", "DROP VIEW v"),
        ("INSERT INTO v VALUES (1)", "is a view"),
        ("CREATE OR REPLACE VIEW v AS SELECT LLM('up', a) FROM v", "reads itself"),
        ("CREATE VIEW w AS SELECT u FROM v; CREATE OR REPLACE VIEW v AS SELECT LLM('up', u) AS u "
         "FROM w", "v reads w reads v"),
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
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_without_a_call(statement, said, con, backend) -> None:
    con.sql("CREATE VIEW v AS SELECT LLM('up', title) AS u FROM films")
    con.sql("CREATE MACRO one(x) AS LLM('up', x)")
    with pytest.raises(QueryError, match=said):
        con.sql(statement)
    assert backend.asked == []
    assert con.sql("SELECT count(u) FROM v").fetchall() == [(6,)]


def test_if_exists_and_or_replace_do_as_in_duckdb(con: Connection) -> None:
    con.sql(ANSWERS)
    con.sql("CREATE VIEW IF NOT EXISTS answers AS SELECT LLM('up', 'no') AS loud")
    con.sql("CREATE TABLE IF NOT EXISTS answers (a INTEGER)")
    assert con.sql("SELECT count(loud) FROM answers").fetchall() == [(6,)]
    con.sql("CREATE OR REPLACE VIEW answers AS SELECT LLM('up', 'new') AS loud")
    assert con.sql("SELECT loud FROM answers").fetchall() == [("NEW",)]
    con.sql("CREATE OR REPLACE VIEW answers AS SELECT 'plain' AS loud")
    assert con.sql("SELECT loud FROM answers").fetchall() == [("plain",)]
    con.sql("CREATE OR REPLACE VIEW answers AS SELECT LLM('up', 'again') AS loud")
    assert con.sql("SELECT loud FROM answers").fetchall() == [("AGAIN",)]
    con.sql("DROP VIEW answers; DROP VIEW IF EXISTS answers")
    with pytest.raises(QueryError, match="answers"):
        con.sql("FROM answers")


@pytest.mark.parametrize(
    "drop", ["DROP MACRO m", "DROP FUNCTION IF EXISTS m", "DROP MACRO TABLE t"]
)
def test_a_macro_can_be_dropped(drop: str, con: Connection) -> None:
    con.sql(
        "CREATE MACRO m(x) AS LLM('up', x); CREATE MACRO t(x) AS TABLE SELECT LLM('up', x) AS u"
    )
    con.sql(drop)
    gone = "SELECT * FROM t(1)" if "TABLE" in drop else "SELECT m(1)"
    with pytest.raises(QueryError):
        con.sql(gone)


def test_a_transaction_that_is_rolled_back_leaves_no_view(con: Connection) -> None:
    con.sql(f"BEGIN; {ANSWERS}; ROLLBACK")
    assert "answers" not in con.tables()
    con.sql(f"BEGIN; {ANSWERS}; COMMIT")
    con.sql("BEGIN; DROP VIEW answers; ROLLBACK")
    assert con.sql("SELECT count(*) FROM answers").fetchall() == [(6,)]


def test_tables_are_written_from_a_view(con: Connection, tmp_path) -> None:
    con.sql("CREATE VIEW v AS SELECT id, id AS film, LLM('up', title) AS text FROM films")
    con.sql("CREATE TABLE t AS FROM v; INSERT INTO reviews SELECT * FROM v WHERE id = 6")
    assert con.sql("SELECT text FROM t WHERE id = 6").fetchall() == [("DUNE",)]
    assert con.sql("SELECT text FROM reviews WHERE id = 6").fetchall() == [("DUNE",)]
    con.sql(f"COPY v TO '{tmp_path / 'v.csv'}'")
    assert con.sql(f"SELECT count(*) FROM '{tmp_path / 'v.csv'}'").fetchall() == [(6,)]


def test_a_prepared_statement_may_read_a_view(con: Connection) -> None:
    con.sql(f"{ANSWERS}; PREPARE p AS SELECT loud FROM answers WHERE id = $1")
    assert con.sql("EXECUTE p(2 * 3)").fetchall() == [("DUNE",)]


def test_a_macro_without_calls_stays_duckdbs(con: Connection) -> None:
    con.sql("CREATE MACRO twice(x) AS x || x")
    assert con.database.connection.execute("SELECT twice('a')").fetchall() == [("aa",)]
    assert con.sql("SELECT twice(LLM('up', 'a'))").fetchall() == [("AA",)]


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
