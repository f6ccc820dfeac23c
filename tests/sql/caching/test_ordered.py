"""Rows and fields are sent as written where, by the provider's price, sharing saves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.connection import connect
from tests.sql.explain.billed import Provider
from tests.sql.fakes import FakeBackend, Fields

SHORT, LONG = "a word", "a few words that many rows share and that go on. " * 400


def reply(query: str, fields: Fields) -> str:
    return f"is {fields['id']}"


def asked(backend: FakeBackend, text: str, **options: Any) -> list[tuple[str, ...]]:
    """The names of the fields of each prompt, in the order sent. Each row has its own answer."""
    with connect(backend, ledger=":memory:", **options) as con:
        found = con.sql(
            "SELECT id, LLM('Is it?', t.*) AS a FROM "
            "(SELECT id, $text || id % 2 AS shared FROM range(12) r(id)) t",
            {"text": text},
        ).fetchall()
    assert sorted(found) == [(number, f"is {number}") for number in range(12)]
    return [tuple(request.fields) for request in backend.asked]


def priced(name: str) -> Provider:
    return Provider(reply, name=name)


@pytest.mark.parametrize("name", ["openai:gpt-4o-mini", "anthropic:claude-sonnet-5"])
def test_a_stage_whose_prompts_share_too_little_for_the_provider_is_sent_as_written(
    name: str,
) -> None:
    backend = priced(name)
    assert asked(backend, SHORT) == [("id", "shared")] * 12
    assert [request.fields["id"] for request in backend.asked] == list(range(12))


@pytest.mark.parametrize("name", ["openai:gpt-4o-mini", "anthropic:claude-sonnet-5"])
def test_a_stage_that_pays_is_sent_in_the_order_that_shares_the_most(name: str) -> None:
    assert asked(priced(name), LONG) == [("shared", "id")] * 12


def test_a_model_without_a_price_gets_the_order_that_shares_the_most() -> None:
    backend = FakeBackend(reply, name="openai:unknown-model")
    assert asked(backend, SHORT) == [("shared", "id")] * 12


def test_a_guard_has_nothing_to_compare_where_fields_are_sent_as_written() -> None:
    backend = priced("openai:gpt-4o-mini")
    assert len(asked(backend, SHORT, guard=0.9)) == 12
