"""AI_SIMILARITY, AI_EMBED, AI_NEAREST and AI_DUPLICATES: plain functions, without a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relquery.connection import Connection, connect
from relquery.errors import IndexWarning, QueryError
from relquery.retrieval.files import file_name
from tests.retrieval.fakes import Letters
from tests.sql.fakes import FakeBackend


def rows(con: Connection, query: str) -> list[tuple[Any, ...]]:
    return con.sql(query).fetchall()


def test_similarity_is_the_cosine_of_the_vectors(con: Connection) -> None:
    pairs = [("Acme Corp", "ACME corp."), ("one", "two"), ("same", "same"), ("", "x"), ("ü", "Ü")]
    for left, right in pairs:
        ((score, a, b),) = rows(
            con,
            f"SELECT AI_SIMILARITY('{left}', '{right}'), AI_EMBED('{left}'), AI_EMBED('{right}')",
        )
        assert score == pytest.approx(float(np.dot(a, b)), abs=1e-5)
    assert rows(con, "SELECT AI_SIMILARITY(NULL, 'a'), AI_EMBED(NULL)") == [(None, None)]


def test_equal_texts_have_1_even_without_a_vector(con: Connection) -> None:
    query = "SELECT AI_SIMILARITY('', ''), AI_SIMILARITY(' ', ' '), AI_SIMILARITY('', ' ')"
    assert rows(con, query) == [(1.0, 1.0, 0.0)]


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


def test_a_join_asks_only_about_near_pairs(con: Connection, backend: FakeBackend) -> None:
    con.sql(
        "CREATE TABLE a AS SELECT unnest(['Acme Corp', 'Globex', 'Initech']) AS name;"
        "CREATE TABLE b AS SELECT unnest(['ACME corp.', 'Globex Inc.', 'Hooli']) AS name"
    )
    query = (
        "SELECT a.name, b.name FROM a JOIN b ON AI_SIMILARITY(a.name, b.name) > 0.6 "
        "AND LLM('up', a.name, b.name) LIKE '%E%'"
    )
    pairs = rows(con, query.replace("LLM('up', a.name, b.name)", "'E'"))
    assert sorted(pairs) == [("Acme Corp", "ACME corp."), ("Globex", "Globex Inc.")]
    con.sql(query)
    assert len(backend.asked) == 2


def test_nearest_gives_k_pairs_for_each_distinct_text(con: Connection) -> None:
    found = rows(
        con,
        "SELECT unnest(AI_NEAREST(['Acme', NULL, 'Acme', 'Globex'], "
        "['globex inc', 'acme corp', 'hooli'], 2), recursive := true)",
    )
    assert [(text, other) for text, other, _ in found] == [
        ("Acme", "acme corp"), ("Acme", found[1][1]), ("Globex", "globex inc"),
        ("Globex", found[3][1]),
    ]  # fmt: skip
    assert rows(con, "SELECT AI_NEAREST([], ['a']), AI_NEAREST(['a'], [])") == [([], [])]


def test_duplicates_are_grouped_under_the_first(con: Connection) -> None:
    query = "SELECT unnest(AI_DUPLICATES(list(n), 0.7), recursive := true) FROM (VALUES ('Acme'), "
    assert rows(con, query + "('acme'), ('Hooli'), ('ACME')) AS t(n)") == [
        ("Acme", "Acme"), ("acme", "Acme"), ("Hooli", "Hooli"), ("ACME", "Acme"),
    ]  # fmt: skip
    assert rows(con, "SELECT AI_DUPLICATES([]::VARCHAR[])") == [([],)]


def test_wrong_arguments_are_refused(con: Connection) -> None:
    for call, error in [
        ("AI_SIMILARITY('a')", "called with 1 argument. It is written AI_SIMILARITY"),
        ("AI_NEAREST('a', 'b')", "takes a list of texts"),
        ("AI_DUPLICATES(['a'], 0)", "threshold is 0"),
        ("AI_NEAREST(['a'], ['b'], 1.5)", "number of texts to find is 1.5"),
    ]:
        with pytest.raises(QueryError, match=error):
            con.sql(f"SELECT {call}")


def test_explain_says_how_many_rows_similarity_leaves(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql(
        "CREATE TABLE a AS SELECT unnest(['Acme Corp', 'Globex', 'Initech']) AS n;"
        "CREATE TABLE b AS SELECT unnest(['ACME corp.', 'Globex Inc.', 'Hooli']) AS n"
    )
    for query, left in [
        ("SELECT * FROM a JOIN b ON AI_SIMILARITY(a.n, b.n) > 0.6 AND AI_FILTER('q', a.n, b.n)", 9),
        ("SELECT * FROM a, b WHERE a.n > 'B' AND AI_SIMILARITY(a.n, b.n) > 0.6 "
         "AND AI_FILTER('q', a.n, b.n)", 6),
        ("SELECT * FROM a JOIN b ON a.n < b.n WHERE AI_FILTER('q', a.n, b.n)", None),
    ]:  # fmt: skip
        (call,) = con.explain(query).calls
        expected = [] if left is None else [f"AI_SIMILARITY leaves {call.rows} of {left} rows"]
        assert call.notes == expected
    assert not backend.asked
