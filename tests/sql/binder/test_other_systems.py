"""Statements of other systems run, or are answered with the statement that does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relquery.connection import Connection
from relquery.errors import QueryError, RelqueryError
from tests.sql.conftest import opened
from tests.sql.fakes import FakeBackend, Fields

SETUP = """
CREATE TABLE t (id INTEGER, review VARCHAR, city VARCHAR, n INTEGER, day DATE);
INSERT INTO t VALUES (1, 'The soup was cold.', 'Bern', 3, DATE '2024-01-02');
CREATE TABLE docs AS SELECT 'Cold food is sent back.' AS text
"""
LINES = [
    line
    for line in Path(__file__).with_name("other_systems.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
CASES = list(zip(LINES[::2], LINES[1::2], strict=True))


def of_its_type(query: str, fields: Fields) -> str:
    """An answer of the type that the prompt asks for."""
    for said, answer in (
        ('"overall"', '{"overall": "mixed", "food": "mixed", "room": "unknown"}'),
        ("personal data", '{"answer": []}'),
        ("all labels", '{"answer": ["food"]}'),
        ('"dish"', '{"dish": "soup", "price": 1.5, "stars": 2}'),
        ("JSON", '{"answer": "2", "person": null, "city": null, "Which dish?": null}'),
        ("sentiment", "neutral"),
        ("praise", "praise"),
        ("food or room", "food"),
    ):
        if said in query:
            return answer
    return "Yes"


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with opened(FakeBackend(of_its_type), SETUP, embedder="tfidf", form="json") as connection:
        yield connection


def test_there_are_60_statements_of_three_systems() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize(("statement", "answer"), CASES, ids=[one for one, _ in CASES])
def test_a_statement_runs_or_is_answered_with_one_that_does(
    statement: str, answer: str, con: Connection
) -> None:
    mark, _, text = answer.partition(" ")
    if mark == "runs":
        text = statement
    else:
        with pytest.raises(RelqueryError) as raised:
            con.sql(statement)
        said = str(raised.value)
        if mark == "!":
            assert text in said
            return
        assert said.partition("Write: ")[2] == text
    result = con.sql(text) if "AI_SCORE" not in text else con.explain(text)
    assert getattr(result, "errors", ()) == ()


def test_a_macro_of_the_user_is_none_of_another_system(con: Connection) -> None:
    con.sql("CREATE MACRO ai_gen(a) AS a || '!'")
    assert con.sql("SELECT ai_gen(city) FROM t").fetchall() == [("Bern!",)]
    with pytest.raises(QueryError, match="nothing"):
        con.sql("SELECT ai_gen(nothing) FROM t")
    con.sql("DROP MACRO ai_gen")
