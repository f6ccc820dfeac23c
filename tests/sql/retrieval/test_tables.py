"""passages, AI_SEARCH and AI_DEDUP: in SQL, views, macros and prepared statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from relquery import span
from relquery.connection import Connection, connect
from relquery.errors import QueryError, UnknownColumnError
from tests.retrieval.fakes import Letters
from tests.sql.conftest import asked_of, upper_or_length
from tests.sql.fakes import FakeBackend

PAGE = Path(__file__).parents[3] / "docs" / "retrieval.md"
DOCS = ["Cats sit on mats.", "Dogs bark.", "Paris is in France.", "Rome is in Italy.", None, ""]


@pytest.fixture
def con() -> Iterator[Connection]:
    with connect(FakeBackend(upper_or_length), ledger=None) as connection:
        connection.register("docs", pa.table({"text": [*DOCS, "Dogs bark."]}))
        connection.sql(
            "CREATE TABLE q AS SELECT * FROM (VALUES (1, 'Is Rome in Italy?'), "
            "(2, 'Do dogs bark?'), (3, NULL), (4, 'xylophone')) AS t(id, question)"
        )
        yield connection


def rows(con: Connection, query: str, *params: object) -> list[tuple[Any, ...]]:
    return con.sql(query, list(params) or None).fetchall()


def test_each_row_finds_its_passages_best_first(con: Connection) -> None:
    assert rows(con, "SELECT passages('docs', question, 2) FROM q ORDER BY id") == [
        (["Rome is in Italy.", "Paris is in France."],),
        (["Dogs bark."],),
        (None,),
        ([],),
    ]


def test_search_gives_the_same_texts_with_their_scores(con: Connection) -> None:
    found = rows(
        con,
        "SELECT passages('docs', question), AI_SEARCH('docs', question) FROM q "
        "WHERE question IS NOT NULL",
    )
    for texts, hits in found:
        assert [hit["text"] for hit in hits] == texts
        scores = [hit["score"] for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1.000001 for score in scores)


def test_more_passages_than_there_are_are_all_that_share_a_word(con: Connection) -> None:
    assert rows(con, "SELECT len(passages('docs', 'in on', 1000))") == [(3,)]


def test_works_wherever_a_function_can_stand(con: Connection) -> None:
    for query in [
        "SELECT passages('DOCS', 'bark', 1, 'TEXT')",
        "SELECT passages('docs', 'bark', k) FROM (VALUES (1)) AS t(k)",
        "SELECT p FROM (SELECT passages('docs', 'bark', 1) AS p)",
        "WITH w AS (SELECT passages('docs', 'bark', 1) AS p) SELECT p FROM w",
        "CREATE VIEW v0 AS SELECT passages('docs', 'bark', 1) AS p; SELECT p FROM v0",
        "CREATE MACRO m(x) AS passages('docs', x, 1); SELECT m('bark')",
        "CREATE MACRO n(x) AS passages('docs', x, 1); CREATE VIEW v1 AS SELECT n('bark') AS p; "
        "SELECT p FROM v1",
        "PREPARE p AS SELECT passages('docs', ?, 1); EXECUTE p('bark')",
        "CREATE TABLE t AS SELECT passages('docs', 'bark', 1) AS p; SELECT p FROM t",
    ]:
        assert rows(con, query) == [(["Dogs bark."],)]


def test_a_parameter_can_be_the_question(con: Connection) -> None:
    assert rows(con, "SELECT passages('docs', ?, 1)", "bark") == [(["Dogs bark."],)]


def test_a_table_written_in_the_same_text_is_searched_as_it_then_is(con: Connection) -> None:
    query = "CREATE TABLE new AS SELECT 'hello world' AS t; SELECT passages('new', 'hello')"
    assert rows(con, query) == [(["hello world"],)]
    query = "INSERT INTO new VALUES ('hello again'); SELECT len(passages('new', 'hello'))"
    assert rows(con, query) == [(2,)]


def test_a_changed_table_is_searched_as_it_is_now(con: Connection) -> None:
    con.sql("CREATE TABLE t AS SELECT 'one fish' AS a; PREPARE p AS SELECT passages('t', 'fish')")
    for statement in ["SELECT passages('t', 'fish')", "EXECUTE p"]:
        con.sql("UPDATE t SET a = 'one fish'")
        assert rows(con, statement) == [(["one fish"],)]
        con.sql("UPDATE t SET a = 'two fish'")
        assert rows(con, statement) == [(["two fish"],)]
    con.sql("DROP TABLE t; CREATE TABLE t AS SELECT 1 AS a, 'red fish' AS b")
    assert rows(con, "SELECT passages('t', 'fish')") == [(["red fish"],)]


def test_tables_of_any_name_are_found(con: Connection) -> None:
    con.sql("CREATE SCHEMA s")
    for name in ('"odd name"', '"with.dot"', '"qu""ote"', "s.inner_table"):
        con.sql(f"CREATE TABLE {name} AS SELECT 'fish' AS \"my col\"")
        written = name.strip('"').replace('""', '"')
        assert rows(con, f"SELECT passages('{written}', 'fish', 1, 'my col')") == [(["fish"],)]


def test_a_path_leads_where_duckdb_says(con: Connection) -> None:
    con.sql(
        "CREATE TABLE twice AS SELECT 'of main' AS a; "
        "CREATE TEMP TABLE twice AS SELECT 'of temp' AS a;"
        "CREATE SCHEMA s; CREATE TABLE s.one AS SELECT 'of s' AS a; ATTACH ':memory:' AS other;"
        "CREATE TABLE other.oo AS SELECT 'of other' AS a; CREATE SCHEMA other.s;"
        "CREATE TABLE other.s.one AS SELECT 'of other s' AS a"
    )
    for path in [
        "twice", "main.twice", "temp.twice", "memory.twice", "memory.main.twice", "s.one",
        "memory.s.one", '"s"."one"', "OTHER.oo", "other.main.oo", "other.s.one",
    ]:  # fmt: skip
        ((text,),) = rows(con, f"SELECT a FROM {path}")
        assert rows(con, f"SELECT passages('{path}', 'of')") == [([text],)]
        for corpus in (path, f"{path}.a"):
            query = span.generate(span.retrieve("of", corpus=corpus, limit=1), max_tokens=5)
            assert str(text) in str(con.explain(query))


def test_found_texts_are_rows_of_from(con: Connection) -> None:
    hits = rows(con, "FROM AI_SEARCH('docs', 'is in', 1)")
    assert hits == rows(
        con, "SELECT hit.text, hit.score FROM unnest(AI_SEARCH('docs', 'is in', 1)) AS f(hit)"
    )
    assert rows(con, "SELECT passage FROM passages('docs', 'bark')") == [("Dogs bark.",)]
    found = "SELECT id, passage FROM q, passages('docs', question, 1) ORDER BY id"
    assert rows(con, found) == [(1, "Rome is in Italy."), (2, "Dogs bark.")]
    asked = "SELECT LLM('up', s.text) FROM q, AI_SEARCH('docs', question, 1) AS s WHERE id = 2"
    assert rows(con, asked) == [("DOGS BARK.",)]


def test_a_prepared_search_is_as_current_as_any(con: Connection) -> None:
    con.sql("CREATE VIEW v AS SELECT passages('docs', 'bark') AS p; PREPARE p AS FROM v")
    con.sql("CREATE TABLE gone AS SELECT 'a fish' AS t; SELECT passages('gone', 'a fish')")
    con.sql("DROP TABLE gone")
    assert rows(con, "EXECUTE p") == [(["Dogs bark."],)]
    con.sql("CREATE TABLE t AS SELECT 'Cats bark.' AS text; CREATE OR REPLACE VIEW v AS SELECT "
            "passages('t', 'bark') AS p")  # fmt: skip
    assert rows(con, "EXECUTE p") == [(["Cats bark."],)]


def test_a_plain_view_and_a_column_of_numbers_can_be_searched(con: Connection) -> None:
    con.sql("CREATE VIEW v AS SELECT 1977 AS year UNION ALL SELECT 1980")
    assert rows(con, "SELECT passages('v', 'of 1980', 1, 'year')") == [(["1980"],)]


def test_an_empty_table_finds_nothing(con: Connection) -> None:
    con.sql("CREATE TABLE none (a VARCHAR)")
    assert rows(con, "SELECT passages('none', 'fish'), AI_SEARCH('none', 'fish')") == [([], [])]


def test_what_cannot_be_searched_is_refused_with_a_remedy(con: Connection) -> None:
    con.sql(
        "CREATE TABLE wide AS SELECT 'x' AS a, 'y' AS b; CREATE TABLE numbers AS SELECT 1 AS n;"
        "CREATE VIEW asking AS SELECT LLM('up', text) AS t FROM docs"
    )
    for query, error in [
        ("SELECT passages(table_name, 'x') FROM (VALUES ('docs')) AS t(table_name)",
         "must be written as a text"),
        ("SELECT passages('doc', 'x')", "table 'doc' to search does not.*Did you mean 'docs'"),
        ("SELECT passages('docs', 'x', 0)", "number of texts to find is 0"),
        ("SELECT passages('docs', 'x', 'two')", "number of texts to find is 'two'"),
        ("SELECT passages('docs')", "passages was called with 1 argument"),
        ("SELECT passages('wide', 'x')", r"2 columns of text \(a, b\).*'x', 5, 'a'|question, 5"),
        ("SELECT passages('numbers', 'x')", "no column of text"),
        ("SELECT AI_DEDUP('docs', 'x', 1.5)", "threshold is 1.5"),
        ("SELECT passages('asking', 'x')", "view with LLM calls"),
        ("SELECT passages()", r"no arguments. Write passages\('table'"),
        ("SELECT passages(docs, question) FROM q", r"must be a text.*passages\('docs', question"),
        ("SELECT AI_DEDUP(docs, 'x') FROM docs", r"must be a text.*AI_DEDUP\('table', text"),
        ("SELECT passages('docs', question, 'text') FROM q", r"question, 5, 'text'"),
        ("SELECT AI_DEDUP('docs', 'x', 'text')", r"threshold is 'text'.*text, 0.9, 'text'"),
        (
            "SELECT AI_SEARCH('docs', 'x', k := 1)",
            r"no named arguments; write the number third: AI_SEARCH\('docs', question, 1\)",
        ),
        (
            "SELECT AI_DEDUP('docs', 0.7, question) FROM q",
            r"threshold third: AI_DEDUP\('docs', question, 0.7\)",
        ),
        (
            "SELECT AI_DEDUP(question, 0.7) FROM q",
            r"threshold third: AI_DEDUP\('table', question, 0.7\)",
        ),
        (
            "WITH d AS (SELECT text FROM docs) SELECT AI_SEARCH('d', 'x', 2)",
            "A WITH entry cannot be searched; save it as a table or view first",
        ),
        ("SELECT passages('docs', 'x', 2::VARCHAR)", "number of texts to find is '2'"),
        ("SELECT AI_DEDUP('wide', 'x')", r"AI_DEDUP\('wide', text, 0.9, 'a'\)"),
        ("SELECT AI_SEARCH('wide', 'x')", r"AI_SEARCH\('wide', question, 5, 'a'\)"),
        ("SELECT passages('wide.b', 'x')", r"apart: passages\('wide', question, 5, 'b'\)"),
        ("SELECT passages('docs', id) FROM q", r"is of type int32.*question::VARCHAR"),
        ("SELECT passages('numbers', 'x', 1, 'n')", "No text of 'numbers' has a word"),
        ("FROM AI_SIMILARITY('a', 'b')", r"cannot stand in FROM. Write SELECT AI_SIM"),
    ]:  # fmt: skip
        with pytest.raises(QueryError, match=error):
            con.sql(query)


def test_an_unknown_column_is_named_with_those_there_are(con: Connection) -> None:
    with pytest.raises(UnknownColumnError, match=r"'nope' is not in 'docs'. Columns: text"):
        con.sql("SELECT passages('docs', 'x', 3, 'nope')")


def test_a_users_macro_of_the_name_stands() -> None:
    with duckdb.connect() as own:
        own.execute("CREATE MACRO passages(a) AS a + 1")
        with connect(FakeBackend(upper_or_length), database=own) as con:
            assert rows(con, "SELECT passages(1), AI_SIMILARITY('a', 'a')") == [(2, 1.0)]


def test_one_database_may_have_several_connections_of_ours() -> None:
    with duckdb.connect() as own:
        own.execute("CREATE TABLE docs AS SELECT 'fish' AS text")
        for _ in range(2):
            with connect(FakeBackend(upper_or_length), database=own) as con:
                assert rows(con, "SELECT passages('docs', 'fish')") == [(["fish"],)]


def test_two_connections_on_one_database_each_have_their_own_functions() -> None:
    with duckdb.connect() as own:
        own.execute("CREATE TABLE docs AS SELECT 'old cat' AS text")
        first = connect(FakeBackend(upper_or_length), database=own)
        second = connect(FakeBackend(upper_or_length), database=own, embedder=Letters())
        lengths = "SELECT len(AI_EMBED('a'))"
        for con, length in [(second, 26), (first, 1024), (second, 26)]:
            assert rows(con, lengths) == [(length,)]
        rows(second, "SELECT passages('docs', 'cat')")
        rows(first, "INSERT INTO docs VALUES ('new cat'); CREATE TABLE other AS FROM docs")
        assert rows(first, "SELECT len(passages('docs', 'cat'))") == [(2,)]
        assert rows(first, "SELECT len(passages('other', 'cat'))") == [(2,)]


def test_near_duplicates_become_the_first_of_them(con: Connection) -> None:
    con.sql(
        "CREATE TABLE firms AS SELECT * FROM (VALUES ('Acme Corp'), ('Globex'), ('ACME corp.'),"
        "(NULL), ('Globex Inc.')) AS t(name)"
    )
    query = "SELECT name, AI_DEDUP('firms', name, 0.7) FROM firms"
    assert dict[Any, Any](rows(con, query)) == {
        "Acme Corp": "Acme Corp", "Globex": "Globex", "ACME corp.": "Acme Corp",
        None: None, "Globex Inc.": "Globex",
    }  # fmt: skip
    assert rows(
        con, "SELECT AI_DEDUP('firms', 'acme CORP', 0.7), AI_DEDUP('firms', 'new', 0.7)"
    ) == [("Acme Corp", "new")]
    assert rows(con, "SELECT count(DISTINCT AI_DEDUP('firms', name, 1.0)) FROM firms") == [(4,)]


def test_a_text_that_is_near_only_to_a_later_text_of_a_group_begins_its_own() -> None:
    with connect(FakeBackend(upper_or_length), embedder=Letters(), ledger=None) as con:
        con.sql("CREATE TABLE t AS SELECT unnest(['aaaa', 'aab', 'bbbb', 'bbba']) AS n")
        found = dict[Any, Any](rows(con, "SELECT n, AI_DEDUP('t', n, 0.8) FROM t"))
        assert found == {"aaaa": "aaaa", "aab": "aaaa", "bbbb": "bbbb", "bbba": "bbbb"}
        # abb is near to aab, which is not the first of its group, and to bbbb.
        query = "SELECT AI_DEDUP('t', 'abb', 0.8), AI_DEDUP('t', 'ab', 0.75), AI_DEDUP('t', 'c')"
        assert rows(con, query) == [("bbbb", "ab", "c")]
        query = "SELECT AI_DEDUP('t', 'ab', 0.7), AI_DEDUP('t', 'abb', 0.4)"
        assert rows(con, query) == [("aaaa", "aaaa")]  # the first that is near, not the nearest


def test_an_index_folder_is_found_again_by_another_connection(tmp_path: Path) -> None:
    for _ in range(2):
        embedder = Letters()
        with connect(FakeBackend(upper_or_length), index=tmp_path, embedder=embedder) as con:
            con.sql("CREATE TABLE docs AS SELECT unnest(['abc', 'xyz']) AS t")
            assert rows(con, "SELECT passages('docs', 'aab', 1)") == [(["abc"],)]
    assert embedder.asked == []


def test_a_question_is_searched_once_whatever_repeats_it() -> None:
    embedder = Letters()
    with connect(FakeBackend(upper_or_length), embedder=embedder, ledger=None) as con:
        con.sql("CREATE TABLE docs AS SELECT unnest(['abc', 'xyz']) AS t")
        con.sql("SELECT LLM('up', passages('docs', 'aab', 1)) FROM range(5000)")
    assert embedder.asked == ["abc", "xyz", "aab"]


def test_span_queries_retrieve_from_tables(con: Connection) -> None:
    con.sql("CREATE TABLE wide AS SELECT 'fish swim' AS a, 'birds fly' AS b")
    backend = con.backend
    assert isinstance(backend, FakeBackend)
    for corpus, text in [("docs", "Dogs bark."), ("wide.b", "birds fly")]:
        query = span.generate(
            span.retrieve("bark or fly", corpus=corpus, limit=1), span.user("up"), max_tokens=5
        )
        assert text in str(con.explain(query))


P = "passages('docs', question, 1)"


SEARCHING = [
    (f"SELECT * FROM (SELECT id, LLM('up', {P}, question) AS a FROM q) WHERE id = 1", 1),
    (f"SELECT count(*) FROM (SELECT id, LLM('up', {P}, question) FROM q)", 0),
    (f"WITH w AS (SELECT id, {P} AS p, LLM('up', question) AS a FROM q) "
     "SELECT a FROM w WHERE len(p) > 9", 0),
    (f"SELECT CASE WHEN len({P}) > 9 THEN LLM('up', question) END FROM q", 0),
    (f"SELECT coalesce({P}[1], LLM('up', question)) FROM q", 2),
    (f"SELECT id FROM q WHERE len({P}) > 0 OR LLM('yes', question) = 'Yes'", 2),
    (f"SELECT id FROM q WHERE LLM('yes', question) = 'Yes' AND len({P}) > 0", 2),
    (f"SELECT id FROM q ORDER BY row_number() OVER (ORDER BY {P}), LLM('up', id) LIMIT 1", 4),
    ("SELECT count(*) FROM q o WHERE EXISTS (SELECT 1 FROM q i WHERE i.id = o.id "
     "AND LLM('up', passages('docs', o.question), i.question) > '')", 4),
    ("SELECT count(*) FROM q o WHERE EXISTS (SELECT 1 FROM docs i WHERE "
     "list_contains(passages('docs', o.question), i.text) AND LLM('up', i.text) > '')", 3),
    ("SELECT count(*) FROM q LEFT JOIN docs ON q.id = 1 "
     "AND LLM('up', passages('docs', q.question), docs.text) > ''", 6),
    ("SELECT count(*) FROM q LEFT JOIN docs ON "
     "list_contains(passages('docs', question), docs.text) AND LLM('up', docs.text) > ''", 3),
]  # fmt: skip


@pytest.mark.parametrize("cases", [SEARCHING[::2], pytest.param(SEARCHING, marks=pytest.mark.long)])
def test_what_searches_is_computed_before_calls_like_any_function(
    con: Connection, cases: list[tuple[str, int]]
) -> None:
    for query, calls in cases:
        asked = asked_of(con)
        con.sql(query)
        assert len(asked) == calls, query


def test_one_row_of_each_group_is_kept_as_the_docs_say(con: Connection) -> None:
    con.sql(
        "CREATE TABLE names AS SELECT unnest([1, 2, 3, 4, 5]) AS id, "
        "unnest(['Acme', 'Acme', 'ACME', 'Hooli', NULL]) AS name"
    )
    (recipe,) = re.findall(r"`(SELECT \* FROM t QUALIFY [^`]*)`", PAGE.read_text(encoding="utf-8"))
    kept = con.sql(recipe.replace("FROM t ", "FROM names ").replace("'t'", "'names'")).fetchall()
    assert sorted(kept) == [(1, "Acme"), (4, "Hooli"), (5, None)]
