"""Functions that search and compare texts: in SQL, views, macros and prepared statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from relquery import span
from relquery.connection import Connection, connect
from relquery.errors import IndexWarning
from relquery.retrieval.files import file_name
from tests.retrieval.fakes import Letters
from tests.sql.conftest import Lender, upper_or_length
from tests.sql.fakes import FakeBackend
from tests.sql.scripts import Script, scripts

PAGE = Path(__file__).parents[3] / "docs" / "retrieval.md"
SETUP = """
CREATE TABLE docs AS SELECT unnest(['Cats sit on mats.', 'Dogs bark.', 'Paris is in France.',
    'Rome is in Italy.', NULL, '', 'Dogs bark.']) AS text;
CREATE TABLE q AS SELECT * FROM (VALUES (1, 'Is Rome in Italy?'), (2, 'Do dogs bark?'), (3, NULL),
    (4, 'xylophone')) AS t(id, question);
"""


@pytest.fixture(scope="module")
def lender() -> Iterator[Lender]:
    lender = Lender(upper_or_length, SETUP)
    yield lender
    lender.close()


@scripts(__file__)
def test_statements(script: Script, con: Connection, backend: FakeBackend) -> None:
    script.run(con, backend)


def rows(con: Connection, query: str, *params: object) -> list[tuple[Any, ...]]:
    return con.sql(query, list(params) or None).fetchall()


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
    for corpus, text in [("docs", "Dogs bark."), ("wide.b", "birds fly")]:
        query = span.generate(
            span.retrieve("bark or fly", corpus=corpus, limit=1), span.user("up"), max_tokens=5
        )
        assert text in str(con.explain(query))


def test_one_row_of_each_group_is_kept_as_the_docs_say(con: Connection) -> None:
    con.sql(
        "CREATE TABLE names AS SELECT unnest([1, 2, 3, 4, 5]) AS id, "
        "unnest(['Acme', 'Acme', 'ACME', 'Hooli', NULL]) AS name"
    )
    (recipe,) = re.findall(r"`(SELECT \* FROM t QUALIFY [^`]*)`", PAGE.read_text(encoding="utf-8"))
    kept = con.sql(recipe.replace("FROM t ", "FROM names ").replace("'t'", "'names'")).fetchall()
    assert sorted(kept) == [(1, "Acme"), (4, "Hooli"), (5, None)]


EVERY_FUNCTION = """
    CREATE OR REPLACE TABLE docs AS SELECT unnest(['abc', 'xyz', 'bca']) AS t;
    SELECT passages('docs', 'aab', 1) FROM docs;
    SELECT AI_EMBED(t), AI_SIMILARITY(t, 'aab'), AI_DEDUP('docs', t) FROM docs;
    SELECT AI_NEAREST(list(t), ['aab', 'xyz']), AI_DUPLICATES(list(t)) FROM docs"""


@pytest.mark.parametrize("in_folder", [True, False])
def test_all_functions_share_the_vectors(
    backend: FakeBackend, tmp_path: Path, in_folder: bool
) -> None:
    folder = tmp_path if in_folder else None
    for is_first in (True, False):
        embedder = Letters()
        with connect(backend, embedder=embedder, index=folder, ledger=None) as con:
            con.sql(EVERY_FUNCTION)
            con.sql(EVERY_FUNCTION)
        is_known = in_folder and not is_first
        assert sorted(embedder.asked) == ([] if is_known else ["aab", "abc", "bca", "xyz"])


def test_a_query_goes_on_if_vectors_cannot_be_stored(backend: FakeBackend, tmp_path: Path) -> None:
    embedder = Letters()
    (tmp_path / f"{file_name(embedder.name)}.vectors").mkdir()
    with connect(backend, embedder=embedder, index=tmp_path, ledger=None) as con:
        with pytest.warns(IndexWarning, match="Vectors stay in memory"):
            con.sql(EVERY_FUNCTION)
        con.sql(EVERY_FUNCTION)
    assert sorted(embedder.asked) == ["aab", "abc", "bca", "xyz"]
