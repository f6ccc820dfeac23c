"""MODULE(field): each value is an independent span, and nothing else about a query changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relquery.config import Order
from relquery.connection import Connection
from relquery.prompt import Reuse, Span
from tests.sql.conftest import asked_of, opened, upper_or_length
from tests.sql.fakes import Asked, FakeBackend, text_of
from tests.sql.scripts import Script, scripts

LONG = pytest.mark.long


@pytest.fixture(scope="module")
def shared() -> Iterator[Connection]:
    with opened(FakeBackend(upper_or_length, has_modules=True)) as connection:
        yield connection


@pytest.fixture
def backend(shared: Connection) -> FakeBackend:
    asked_of(shared)
    assert isinstance(shared.backend, FakeBackend)
    shared.backend.has_modules = True
    return shared.backend


@pytest.fixture
def con(shared: Connection, backend: FakeBackend) -> Connection:
    return shared


def modules(asked: Asked) -> list[str]:
    return [text_of(span) for span in asked.prompt if span.reuse is Reuse.INDEPENDENT]


@scripts(__file__)
def test_statements(script: Script, con: Connection, backend: FakeBackend) -> None:
    script.run(con, backend, modules=modules)


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


def test_other_backends_are_sent_the_fields_as_text(backend: FakeBackend) -> None:
    backend.has_modules = False
    with opened(backend) as con:
        con.sql("SELECT LLM('up', MODULE(title), genre) FROM films")
        assert all(not modules(asked) for asked in backend.asked)
        told = str(con.explain("SELECT LLM('up', MODULE(title)) FROM films"))
        assert "MODULE: each" not in told
        assert "MODULE has no effect: a provider's model is sent title as ordinary text" in told


def test_the_ledger_keeps_answers_with_modules_apart(backend: FakeBackend, tmp_path: Path) -> None:
    with opened(backend, ledger=tmp_path / "ledger.db") as con:
        for query, calls in (
            ("SELECT LLM('up', title) FROM films WHERE id = 1", 1),
            ("SELECT LLM('up', MODULE(title)) FROM films WHERE id = 1", 2),
            ("SELECT LLM('up', MODULE(title)) FROM films WHERE id = 1", 2),
        ):
            con.sql(query)
            assert len(backend.asked) == calls
