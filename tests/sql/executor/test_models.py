"""Each call may name its model: a small one filters, and a strong one writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relquery.backends import load as loading
from relquery.backends.base import Backend
from relquery.backends.load import load_named
from relquery.connection import Connection
from relquery.errors import ConfigError, ModelError, QueryError
from relquery.prompt import Sampling
from relquery.sql.executor.context import Models
from tests.sql.conftest import opened, upper_or_length
from tests.sql.fakes import FakeBackend, Fields

CHEAP, DEAR = "openai:gpt-5-nano", "openai:gpt-5"


def lower(query: str, fields: Fields) -> str:
    """The strong model: in small letters what the other says in capital ones."""
    said = upper_or_length(query, fields)
    return str(said).lower() if query == "up" else str(said)


class Named:
    """Opens models by name, and counts."""

    def __init__(self) -> None:
        self.opened: dict[str, FakeBackend] = {}

    def __call__(self, name: str) -> Backend:
        assert name not in self.opened, "opened twice"
        if "broken" in name:
            raise ModelError("It cannot be loaded. Give another one.")
        self.opened[name] = FakeBackend(lower, name)
        return self.opened[name]


@pytest.fixture
def named() -> Named:
    return Named()


@pytest.fixture
def con(named: Named) -> Iterator[Connection]:
    con = opened(ledger=":memory:")
    with replace(con, models=Models(("own",), named, lambda name: "json")) as con:
        yield con


@pytest.fixture
def backend(con: Connection) -> FakeBackend:
    assert isinstance(con.backend, FakeBackend)
    return con.backend


def test_a_small_model_filters_and_a_strong_one_writes(
    con: Connection, backend: FakeBackend, named: Named
) -> None:
    query = (
        "SELECT title, LLM('up', title, model := 'strong') AS a FROM films "
        "WHERE LLM('yes', title) = 'Yes' ORDER BY id"
    )
    result = con.sql(query)
    titles = [title for (title,) in con.sql("SELECT title FROM films ORDER BY id").fetchall()]
    kept = [title for title in titles if title and len(title) % 2 == 0]
    assert result.fetchall() == [(title, title.lower()) for title in kept]
    assert set(backend.queries) == {"yes"}
    assert named.opened["strong"].queries == ["up"] * len(set(kept))
    assert [stage.model for stage in result.report.stages] == ["fake", "strong"]
    by_model = {name: report.calls for name, report in result.report.by_model.items()}
    assert by_model == {"fake": 4, "strong": len(set(kept))}
    assert "strong" in str(result.report)
    con.sql(query)
    assert len(named.opened["strong"].asked) == len(set(kept)), "the ledger has its answers"


@pytest.mark.parametrize("ledger", [None, ":memory:", "file"])
def test_equal_calls_of_two_models_are_two(
    ledger: str | None, tmp_path: Path, named: Named
) -> None:
    path = str(tmp_path / "l.db") if ledger == "file" else ledger
    query = (
        "SELECT LLM('up', title), LLM('up', title, model := 'strong'), "
        "LLM('up', title, model := 'own') FROM films WHERE id = 1"
    )
    counts = []
    for _ in range(2):
        named.opened.clear()
        models = Models(("own",), named, lambda name: "json")
        with replace(opened(ledger=path), models=models) as con:
            result = con.sql(query)
        assert result.fetchall() == [("ALIEN", "alien", "ALIEN")]
        counts.append((result.report.calls, result.report.ledger_hits))
    assert counts[0][0] == 2, "the connection's own model has no second name"
    assert counts[1][0] == (0 if ledger == "file" else 2)


def test_a_score_and_a_filter_of_two_models_share_no_request(con: Connection) -> None:
    query = "SELECT AI_FILTER('x', title), AI_CLASSIFY(title, ['a'], model := 'strong') FROM films"
    explained = con.explain(query)
    assert [call.model for call in explained.calls] == ["fake", "strong"]


def test_models_are_opened_once_and_closed_with_the_connection(
    con: Connection, named: Named
) -> None:
    for _ in range(2):
        con.sql("SELECT LLM('up', title, model := 'strong') FROM films")
    strong = named.opened["strong"]
    assert not strong.closed
    con.close()
    assert strong.closed


@pytest.mark.parametrize(
    "query",
    [
        "SELECT LLM('up', title, model := 'broken') FROM films WHERE LLM('yes', title) = 'Yes'",
        "SELECT LLM('up', title) FROM films; SELECT LLM('up', title, model := 'broken') FROM films",
        "EXPLAIN SELECT LLM('up', title, model := 'broken') FROM films",
    ],
)
def test_a_model_that_cannot_be_opened_is_refused_before_the_first_call(
    query: str, con: Connection, backend: FakeBackend
) -> None:
    with pytest.raises(ModelError, match=r"names the model 'broken'\. It cannot be loaded"):
        con.sql(query)
    assert backend.asked == []


def test_a_model_that_refuses_a_call_does_so_before_another_one_is_asked(
    con: Connection, backend: FakeBackend, named: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FakeBackend, sampling: Sampling) -> None:
        if self.name == "strong":
            raise ModelError("No API key is set.")

    monkeypatch.setattr(FakeBackend, "check", refuse)
    query = "SELECT LLM('up', title, model := 'strong') FROM films WHERE LLM('yes', title) = 'Yes'"
    assert con.explain(query).calls, "costs are told without a key"
    with pytest.raises(ModelError, match=r"'strong'\. No API key is set"):
        con.sql(query)
    assert backend.asked == []


def test_snowflakes_order_has_the_model_first(con: Connection, named: Named) -> None:
    ask = "SELECT AI_COMPLETE({}) FROM films WHERE id = 1"
    for call in (
        "'openai:gpt-x', 'up', title",
        "'mistral-large', 'up', title",
        "model => 'm', prompt => 'up', text => title",
    ):
        assert con.sql(ask.format(call)).fetchall() == [("alien",)], call
    assert list(named.opened) == ["openai:gpt-x", "mistral-large", "m"]
    assert con.sql(ask.format("'claude-4', 'Say ' || title")).fetchall() == [("Say Alien",)]


def test_a_name_of_the_connections_models_may_stand_first_too() -> None:
    strong = FakeBackend(lower, "strong")
    with opened(models={"strong": strong}, form="json") as con:
        for call in ("'strong', 'up', title", "'strong', PROMPT('up')", "'strong', title"):
            con.sql(f"SELECT AI_COMPLETE({call}) FROM films WHERE id = 1")
        assert isinstance(con.backend, FakeBackend)
        assert (len(strong.asked), con.backend.asked) == (3, [])
        con.sql("SELECT AI_COMPLETE('up', title) FROM films WHERE id = 1")
        assert len(con.backend.asked) == 1


@pytest.mark.parametrize("cheap", ["first", "second"])
def test_of_two_filters_the_cheaper_model_goes_first(cheap: str) -> None:
    own, other = (CHEAP, DEAR) if cheap == "first" else (DEAR, CHEAP)
    one, two = FakeBackend(lambda *_: "No", own), FakeBackend(lambda *_: "No", other)
    with opened(one, models={"other": two}) as con:
        con.sql(
            "SELECT id FROM films WHERE LLM('this is as long as it gets', title) = 'Yes' "
            "AND LLM('short', title, model := 'other') = 'Yes'"
        )
    asked = {backend.name: len(backend.asked) for backend in (one, two)}
    assert asked == {CHEAP: 4, DEAR: 0}


def test_costs_are_told_by_model() -> None:
    one, two = FakeBackend(lower, CHEAP), FakeBackend(lower, DEAR)
    query = "SELECT LLM('up', title), LLM('up', title, model := 'other') FROM films"
    with opened(one, models={"other": two}) as con:
        table = con.explain(query, cost=True).arrow().to_pydict()
        assert table["stage"][2:] == [f"total {CHEAP}", f"total {DEAR}", "total"]
        assert table["usd"][1] > 5 * table["usd"][0] > 0
        assert table["usd"][4] == pytest.approx(table["usd"][2] + table["usd"][3])
        assert "model" in con.explain(query).columns()
        report = con.sql(query).report
    usd = {name: one.usd for name, one in report.by_model.items()}
    assert usd[DEAR] == pytest.approx(25 * (usd[CHEAP] or 0.0)), "as their prices are"
    assert report.usd == pytest.approx(sum(one or 0.0 for one in usd.values()))


@pytest.mark.parametrize(
    ("name", "own", "expected"),
    [
        ("openai:b", "openai:a", {"api_key", "base_url", "budget", "timeout", "rpm"}),
        ("anthropic:b", "openai:a", {"budget", "timeout"}),
        ("http://h/v1", "openai:a", {"budget", "timeout"}),
        ("other", "openai:a", {"budget", "timeout", "model", "api_key"}),
        ("some/folder", "openai:a", set()),
        ("openai:b", "demo", {"api_key", "base_url", "budget", "timeout", "rpm"}),
        ("http://h/v1", "demo", {"budget", "timeout"}),
    ],
)
def test_keys_and_addresses_stay_with_their_provider(
    name: str, own: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Mapping[str, Any]] = []
    monkeypatch.setattr(loading, "load", lambda model, /, **options: given.append(options))
    options = {"api_key": "k", "base_url": "u", "budget": "5USD", "timeout": 9.0, "rpm": 3}
    known = {"other": {"source": "http://h/v1", "model": "x", "api_key": "of h"}}
    load_named(name, known, own, options, None)
    assert given[0].keys() == expected
    assert given[0].get("api_key") in (None, "of h" if name == "other" else "k")


def test_what_is_no_model_among_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="it must be a dict"):
        opened(models=["openai:gpt-5"])
    with pytest.raises(ConfigError, match="Give a model name"):
        opened(models={"strong": 3})
    with opened(models={"strong": {"budget": "5USD"}}) as con:
        with pytest.raises(ConfigError, match="models has no 'model' for 'strong'"):
            con.sql("SELECT LLM('up', title, model := 'strong') FROM films")
        with pytest.raises(QueryError, match="expected a text"):
            con.sql("SELECT LLM('up', title, model := title) FROM films")
