"""MODULE(field): each value is an independent span, and nothing else about a query changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relquery.config import Order
from relquery.connection import Connection, connect
from relquery.errors import QueryError
from relquery.prompt import Prompt, Reuse, Span
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.fakes import FakeBackend, text_of

LONG = pytest.mark.long


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(upper_or_length, has_modules=True)


@pytest.fixture
def con(backend: FakeBackend) -> Iterator[Connection]:
    with connect(backend, ledger=None) as connection:
        connection.database.execute(SETUP)
        yield connection


def modules(prompt: Prompt) -> list[str]:
    return [text_of(span) for span in prompt if span.reuse is Reuse.INDEPENDENT]


@pytest.mark.parametrize(
    "order", ["original", "tree", *(pytest.param(one, marks=LONG) for one in ("fixed", "ggr"))]
)
def test_each_distinct_value_is_one_span_behind_the_other_fields(
    order: Order, con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT LLM('up', MODULE(genre), title, id) FROM films", order=order)
    assert len(backend.asked) == 6
    spans: dict[str, Span] = {}
    for asked in backend.asked:
        (module,) = (span for span in asked.prompt if span.reuse is Reuse.INDEPENDENT)
        assert module.keep
        assert text_of(module) == f'"genre": "{asked.fields["genre"]}"'
        assert spans.setdefault(text_of(module), module) is module
        text = "".join(map(text_of, asked.prompt))
        assert set(asked.fields) == {"genre", "title", "id"}
        if order != "original":
            assert text.index('"genre"') > max(text.index('"title"'), text.index('"id"'))
    assert len(spans) == 3


def test_modules_are_found_wherever_a_call_may_be(con: Connection, backend: FakeBackend) -> None:
    for query, expected in [
        ("SELECT LLM('up', module(title)) FROM films WHERE id = 1", ['"title": "Alien"']),
        ("SELECT LLM('up', MODULE(f.title)) FROM films f WHERE id = 1", ['"title": "Alien"']),
        ("SELECT LLM('up', MODULE(r.*)) FROM reviews r WHERE id = 10",
         ['"id": 10', '"film": 1', '"text": "great"']),
        ("SELECT LLM('up', MODULE(upper(genre))) FROM films WHERE id = 2",
         ['"upper_genre": "COMEDY"']),
        ("SELECT genre, LLM('up', MODULE(genre), sum(id)) FROM films WHERE id = 3 GROUP BY 1",
         ['"genre": "comedy"']),
        ("SELECT sum(LLM('len', MODULE(title))::INT) FROM films WHERE id = 6", ['"title": "Dune"']),
        ("SELECT f.id FROM films f JOIN reviews r ON f.id = r.film "
         "AND LLM('yes', MODULE(r.text), f.title) = 'Yes' WHERE r.id = 12", ['"text": "sweet"']),
        ("WITH a AS (SELECT LLM('up', MODULE(title)) AS t FROM films WHERE id = 1) FROM a",
         ['"title": "Alien"']),
        ("SELECT LLM('up', MODULE(LLM('len', title))) FROM films WHERE id = 1", ['"llm_2": "5"']),
        ("SELECT LLM('up', MODULE(title), title) FROM films WHERE id = 1", ['"title": "Alien"']),
        ("SELECT LLM('up', title, MODULE(title)) FROM films WHERE id = 1", []),
    ]:  # fmt: skip
        con.sql(query)
        assert modules(backend.asked[-1].prompt) == expected, query


def test_answers_and_names_are_those_without_modules(con: Connection) -> None:
    for query in (
        "SELECT LLM('up', MODULE(title), genre) AS a FROM films ORDER BY a",
        "SELECT id, LLM('len', MODULE(*)) FROM films WHERE LLM('yes', MODULE(title)) = 'Yes'",
        "SELECT genre, sum(LLM('len', MODULE(title))::INT) AS n FROM films GROUP BY 1 ORDER BY 1",
    ):
        plain = query.replace("MODULE(*)", "*").replace("MODULE(title)", "title")
        assert con.sql(query).fetchall() == con.sql(plain).fetchall()
        assert [
            n.replace("module(", "").replace("MODULE(", "").replace("))", ")")
            for n in con.sql(query).columns
        ] == con.sql(plain).columns


def test_other_backends_are_sent_the_fields_as_text(backend: FakeBackend) -> None:
    backend.has_modules = False
    with connect(backend, ledger=None) as con:
        con.database.execute(SETUP)
        con.sql("SELECT LLM('up', MODULE(title), genre) FROM films")
        assert all(not modules(asked.prompt) for asked in backend.asked)
        told = str(con.explain("SELECT LLM('up', MODULE(title)) FROM films"))
        assert "MODULE: each" not in told
        assert "MODULE has no effect: a provider's model is sent title as ordinary text" in told


def test_the_ledger_keeps_answers_with_modules_apart(backend: FakeBackend, tmp_path: Path) -> None:
    with connect(backend, ledger=tmp_path / "ledger.db") as con:
        con.database.execute(SETUP)
        for query, calls in (
            ("SELECT LLM('up', title) FROM films WHERE id = 1", 1),
            ("SELECT LLM('up', MODULE(title)) FROM films WHERE id = 1", 2),
            ("SELECT LLM('up', MODULE(title)) FROM films WHERE id = 1", 2),
        ):
            con.sql(query)
            assert len(backend.asked) == calls


def test_calls_with_and_without_a_module_are_two(con: Connection, backend: FakeBackend) -> None:
    con.sql("SELECT LLM('up', title), LLM('up', MODULE(title)) FROM films WHERE id = 1")
    assert [modules(asked.prompt) for asked in backend.asked] == [[], ['"title": "Alien"']]


def test_explain_says_which_fields_are_modules(con: Connection) -> None:
    told = str(con.explain("SELECT LLM('up', MODULE(title), genre) FROM films"))
    assert "MODULE(title), genre" in told
    assert "each value of title is read by itself" in told


def test_what_is_no_field_is_refused(con: Connection) -> None:
    for call in ("LLM(MODULE('up'), title)", "LLM('up', MODULE())", "LLM('up', MODULE(id, title))"):
        with pytest.raises(QueryError, match="must be a field of an LLM call"):
            con.sql(f"SELECT {call} FROM films")
