"""What is wrong with a query is said before any call is made, and nothing foreign leaks."""

from __future__ import annotations

import contextlib

import pytest
from rich.cells import cell_len

from relquery.connection import Connection
from relquery.errors import (
    QueryError,
    RelqueryError,
    SqlSyntaxError,
    TableError,
    UnknownColumnError,
    UnknownTableError,
    UnsupportedQueryError,
)
from tests.sql.conftest import own_backend
from tests.sql.fakes import FakeBackend


@pytest.fixture
def con(opened: Connection) -> Connection:
    return opened


@pytest.fixture
def backend(opened: Connection) -> FakeBackend:
    return own_backend(opened)


def test_an_unknown_column_is_named_with_the_nearest_one(
    con: Connection, backend: FakeBackend
) -> None:
    for query in [
        "SELECT LLM('up', titel) FROM films",
        "SELECT titel, LLM('up', id) FROM films",
        "SELECT LLM('up', id) FROM films WHERE titel = 'x'",
        "SELECT LLM('up', id) FROM films ORDER BY titel",
        "SELECT LLM('up', f.titel) FROM films f",
        "SELECT LLM('up', LLM('up', titel)) FROM films",
        "SELECT titel FROM films",
        "WITH a AS (SELECT LLM('up', id) AS u, titel FROM films) SELECT u FROM a",
    ]:
        with pytest.raises(UnknownColumnError, match=r"'titel'.*Did you mean 'title'\?"):
            con.sql(query)
        assert backend.asked == []


def test_an_unknown_column_outside_of_an_inner_select_is_found_before_its_calls(
    con: Connection, backend: FakeBackend
) -> None:
    with pytest.raises(UnknownColumnError, match="'v' is not in"):
        con.sql("SELECT v FROM (SELECT LLM('up', title) AS u FROM films)")
    assert backend.asked == []


def test_an_unknown_table_is_named_with_the_nearest_one(con: Connection) -> None:
    for query in ["SELECT LLM('up', id) FROM flims", "SELECT * FROM flims", "FROM flims SELECT 1"]:
        with pytest.raises(UnknownTableError, match=r"'flims'.*Did you mean 'films'"):
            con.sql(query)


def test_a_python_variable_is_no_table(con: Connection) -> None:
    flims = object()
    with pytest.raises(UnknownTableError):
        con.sql("SELECT LLM('up', id) FROM flims")
    del flims


def test_a_wrong_table_qualifier_names_the_tables_of_the_from_clause(con: Connection) -> None:
    with pytest.raises(QueryError, match="The table 'g' of this FROM clause is not known"):
        con.sql("SELECT LLM('up', g.title) FROM films f")


def test_an_unknown_column_lists_all_columns_of_its_from_clause(con: Connection) -> None:
    for query, message in [
        ("SELECT LLM('up', nosuch) FROM pairs", "table pairs. Columns: left_one, right_one."),
        ("SELECT LLM('up', p.nosuch) FROM pairs p", "table p. Columns: left_one, right_one."),
        ("SELECT nosuch FROM pairs", "table pairs. Columns: left_one, right_one."),
        ("SELECT LLM('up', nosuch) FROM (SELECT left_one FROM pairs) q",
         "table q. Columns: left_one."),
        ("SELECT LLM('up', nosuch) FROM (SELECT LLM('up', left_one) AS up, right_one FROM pairs) q",
         "table q. Columns: up, right_one."),
        ("SELECT LLM('up', nosuch) FROM pairs p JOIN pairs q USING (left_one)",
         "tables p, q. Columns: left_one, right_one."),
        ("SELECT LLM('up', nosuch) FROM pairs p, empty e",
         "tables p, e. Columns: left_one, right_one, id, text."),
        ("SELECT id FROM films WHERE id IN (SELECT nosuch FROM pairs)",
         "table pairs. Columns: left_one, right_one."),
        ("WITH q AS (SELECT 1 AS one, 2 AS two) SELECT LLM('up', nosuch) FROM q",
         "table q. Columns: one, two."),
    ]:  # fmt: skip
        con.register("pairs", {"left_one": [1], "right_one": [2]})
        with pytest.raises(UnknownColumnError) as caught:
            con.sql(query)
        assert str(caught.value).startswith(f"Column 'nosuch' is not in {message}")


def test_a_caret_under_a_tab_keeps_the_tab(con: Connection) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        con.sql("SELECT 1\n\tFROM films FROM films")
    shown, caret = str(caught.value).split("\n")[-2:]
    assert shown == "  \tFROM films FROM films"
    assert caret == "  \t" + " " * len("FROM films ") + "^"


def test_a_star_of_an_unknown_table_names_the_tables(con: Connection) -> None:
    with pytest.raises(
        QueryError, match=r"The table 'q' of this FROM clause is not known\. Known: f\."
    ):
        con.sql("SELECT LLM('up', q.*) FROM films f")


def test_an_option_with_a_plain_equals_sign_is_told_the_right_one(con: Connection) -> None:
    with pytest.raises(QueryError, match=r"write labels := \['a', 'b'\]"):
        con.sql("SELECT LLM('up', id, labels = ['a', 'b']) FROM films")
    con.sql("SELECT LLM('up', labels = 'x') FROM (SELECT 'x' AS labels)")


def test_an_empty_query_is_said_to_be_empty(con: Connection) -> None:
    for text in ["", " ;  ", "-- nothing", ";;"]:
        with pytest.raises(QueryError, match="The query is empty"):
            con.sql(text)


def test_a_query_that_is_not_text_is_refused(con: Connection) -> None:
    with pytest.raises(QueryError, match="it must be a string of SQL"):
        con.sql(5)  # type: ignore[arg-type]


LABELS = "labels := ['Yes', 'No']"


def test_a_comparison_with_what_is_no_label_is_found_before_the_first_call(
    con: Connection, backend: FakeBackend
) -> None:
    for condition, said in [
        (f"LLM('yes', title, {LABELS}) = 'yes'", r"with 'yes', but .* are 'Yes', 'No'. Did you .*"),
        (f"(LLM('yes', title, {LABELS})) <> 'Maybe'", "compared with 'Maybe'"),
        (f"LLM('yes', title, {LABELS}) IN ('y', 'n')", "compared with 'y', 'n'"),
    ]:
        with pytest.raises(QueryError, match=said):
            con.sql(f"SELECT id FROM films WHERE {condition}")
        assert not backend.asked


def test_other_comparisons_of_labels_are_run(con: Connection) -> None:
    for condition in ["IN ('yes', 'Yes', 'YES')", "<> ''", "> 'a'", "= genre"]:
        con.sql(f"SELECT id FROM films WHERE LLM('yes', title, {LABELS}) {condition}")


def test_sql_that_does_not_parse_is_shown_with_line_column_and_caret(con: Connection) -> None:
    for query, line, column in [
        ("SELEC 1", 1, 1),
        ("SELECT LLM('up', title)\nFORM films f\nWHERE id = 1", 2, 6),
        ("SELECT LLM('up', title FROM films", 1, 24),
        ("SELECT '🎉', LLM('up', 'open) FROM films", 1, 23),
        ("SELECT '東京', 1 FORM films", 1, 21),
        (f"SELECT {'1, ' * 60}LLM('up', title) FORM films f", 1, 210),
        ("SELECT 1;\nSELEC 2", 2, 1),
    ]:
        with pytest.raises(SqlSyntaxError) as caught:
            con.sql(query)
        assert (caught.value.line, caught.value.column) == (line, column)
        shown, caret = str(caught.value).split("\n")[-2:]
        assert shown.strip() == query.split("\n")[line - 1]
        before = query.split("\n")[line - 1][: column - 1]
        assert caret.index("^") == 2 + cell_len(before)  # a terminal shows wide characters as two


def test_a_form_that_is_not_run_names_a_rewrite(con: Connection, backend: FakeBackend) -> None:
    for query, remedy in [
        ("SELECT * FROM films f, LATERAL (SELECT LLM('up', r.text) FROM reviews r WHERE "
         "r.film = f.id)", "Join the tables"),
        ("SELECT (SELECT LLM('up', max(r.text)) FROM reviews r WHERE r.film = f.id) FROM films f",
         "Join the tables"),
        ("SELECT * FROM films f ASOF JOIN reviews r ON f.id >= r.film AND LLM('up', f.genre) = "
         "LLM('up', r.text)", "ASOF join, which cannot have one"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT CAST(LLM('len', i) AS INTEGER) FROM n)"
         " SELECT * FROM n", "Run the recursion first"),
        ("SELECT LLM('up', row_number() OVER ()) FROM films", "subquery"),
        ("SELECT list_transform(tags, lambda t: LLM('up', t)) FROM films", "unnest"),
        ("SELECT LLM('up', unnest(tags)) FROM films", "unnest.items. AS u"),
        ("SELECT LLM('up', generate_subscripts(tags, 1)) FROM films", "unnest.items. AS u"),
        ("SELECT LLM('up', id), * LIKE 't%' FROM films", "Name the columns"),
        ("SELECT LLM('up', id), COLUMNS('^(id|stars)$') + 1 FROM films", "Name the columns"),
        ("SELECT LLM('up', id), * RENAME (id AS key) FROM films", "Name the columns"),
        ("SELECT LLM('up', id), unnest(info) FROM films", "Name the columns"),
        ("DELETE FROM films WHERE LLM('up', title) = 'DUNE'", "CREATE TABLE answers AS"),
        ("EXPLAIN DESCRIBE SELECT LLM('up', title) FROM films", "CREATE TABLE answers AS"),
        ("EXPLAIN UPDATE films SET title = LLM('up', title)", "CREATE TABLE answers AS"),
        ("VALUES (LLM('up', 'x'))", "CREATE TABLE answers AS"),
        ("SELECT id FROM films UNION SELECT 1 ORDER BY LLM('up', id)", "CREATE TABLE answers AS"),
        ("UPDATE films SET title = LLM('up', title)", "CREATE TABLE answers AS"),
        ("SELECT * FROM range(CAST(LLM('len', 'x') AS INTEGER))", "FROM clause"),
        ("SELECT main.LLM('up', title) FROM films", "without a schema"),
        ("SELECT LLM('up', title) OVER () FROM films", "Remove OVER"),
        ("SELECT LLM(DISTINCT 'up', title) FROM films", "Remove DISTINCT"),
        ("SELECT LLM('up', title ORDER BY id) FROM films", "Remove ORDER BY"),
        ("SELECT LLM('up', title) FILTER (WHERE true) FROM films", "Remove FILTER"),
        ("PIVOT (SELECT id, LLM('up', title) AS u FROM films) ON u USING max(id)",
         "PIVOT with LLM calls.*CREATE TABLE answers AS"),
        ("EXPLAIN (FORMAT JSON) SELECT LLM('up', 1)", r"\(FORMAT JSON\) with.*Write EXPLAIN to"),
        ("UPDATE films SET title = LLM('up', title)", "UPDATE with.*UPDATE t SET .* FROM answers"),
        ("DELETE FROM films WHERE LLM('up', title) = 'DUNE'", "DELETE with.*USING answers"),
        ("EXPLAIN CREATE VIEW v AS SELECT LLM('up', title) FROM films", "Explain a query that"),
        ("EXPLAIN CREATE MACRO m(x) AS (SELECT LLM('up', x))", "Explain a query that uses"),
    ]:  # fmt: skip
        with pytest.raises(UnsupportedQueryError, match=remedy):
            con.sql(query)
        assert backend.asked == []


def test_no_name_of_ours_is_in_a_message(con: Connection) -> None:
    for query in [
        "SELECT LLM('up', title), FROM films TABLESAMPLE x",
        "SELECT LLM('up', title ORDER BY id) FROM films",
        "SELECT * FROM films PIVOT (max(LLM('up', title)) FOR id IN (1, 2))",
        "PIVOT films ON id USING max(LLM('up', title))",
        "SELECT * REPLACE (LLM('up', title) AS nosuch) FROM films",
        "SELECT LLM('up', title) AS a, sum(a) FROM films",
        "SELECT (SELECT LLM('up', title), 1) FROM films",
        "SELECT LLM('up', title) COLLATE nosuch FROM films",
    ]:
        with pytest.raises(QueryError) as caught:
            con.sql(query)
        assert "_rq_" not in str(caught.value).lower()


def test_errors_of_duckdb_are_query_errors(con: Connection) -> None:
    for query, kind, message in [
        ("SELECT sum(title), LLM('up', id) FROM films", QueryError, "No function matches"),
        ("SELECT avg(u) FROM (SELECT LLM('up', id) AS u FROM films)", QueryError,
         r"CAST\(LLM\(...\) AS DOUBLE\)"),
        ("SELECT nope(LLM('up', id)) FROM films", QueryError, "nope"),
        ("SELECT max(LLM('up', id))::DATE FROM films", QueryError, r"column max\(LLM\(\.\.\.\)\)"),
        ("SELECT id, count(LLM('up', id)) FROM films", QueryError, "GROUP BY"),
        ("SELECT id FROM films WHERE LLM('yes', id)", QueryError, r"LLM\(...\) = 'Yes'"),
        ("SELECT if(NOT LLM('yes', id), 1, 2) FROM films", QueryError, r"LLM\(...\) = 'Yes'"),
        ("SELECT LLM('\ud83c', id) FROM films", QueryError, "lone surrogate"),
        ("SELECT x.llm('up') FROM films x", UnsupportedQueryError, "without a schema or value"),
        ("SELECT LLM('up', c) FROM 'nowhere.csv'", TableError, "No files found"),
        ("INSERT INTO films SELECT LLM('up', id) FROM films", QueryError, "column"),
        ("SELECT error('boom')", QueryError, "boom"),
    ]:  # fmt: skip
        with pytest.raises(kind, match=message):
            con.sql(query)


def test_whatever_the_text_only_our_errors_are_raised(con: Connection) -> None:
    for text in [
        "",
        ";",
        "--",
        "SELECT",
        "(",
        "'",
        "LLM(",
        "SELECT LLM('x',,)",
        "SELECT LLM('x', *) FROM films, films",
        "\0",
        "SELECT LLM(*)",
    ]:
        with contextlib.suppress(RelqueryError):
            con.sql(text)


def test_the_connection_is_usable_after_an_error(con: Connection, backend: FakeBackend) -> None:
    with pytest.raises(QueryError):
        con.sql("SELECT LLM('up', titel) FROM films")
    assert con.sql("SELECT LLM('up', title) FROM films WHERE id = 1").fetchall() == [("ALIEN",)]
