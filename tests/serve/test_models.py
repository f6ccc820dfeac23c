"""The list of models, with both clients, each in the form of its API."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest

from tests.serve.conftest import Running, inside

NAMES = ("demo", "some/model", "last")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with inside("simulated:step=0.0005,length=4", names=NAMES) as found:
        yield found


def test_models_are_listed_and_found_by_name(client: openai.OpenAI) -> None:
    models = client.models.list().data
    assert [model.id for model in models] == list(NAMES)
    assert [client.models.retrieve(name) for name in NAMES] == models
    with pytest.raises(openai.NotFoundError, match="'some/other' is not served"):
        client.models.retrieve("some/other")


def test_anthropics_client_gets_its_own_form(theirs: anthropic.Anthropic) -> None:
    models = theirs.models.list().data
    assert [(model.id, model.type, model.lifecycle) for model in models] == [
        (name, "model", "active") for name in NAMES
    ]
    assert theirs.models.retrieve("some/model") == models[1]
    assert models[0].created_at.year > 2000
    assert (models[0].max_input_tokens or 0) > 0


def test_pages_lead_through_all_names_in_both_directions(theirs: anthropic.Anthropic) -> None:
    assert [model.id for model in theirs.models.list(limit=1)] == list(NAMES)
    backwards = [model.id for model in theirs.models.list(limit=1, before_id="last")]
    assert backwards == ["some/model", "demo"]
    with pytest.raises(anthropic.BadRequestError, match="'other'"):
        theirs.models.list(after_id="other")


def test_errors_have_the_form_of_the_client(theirs: anthropic.Anthropic, server: Running) -> None:
    with pytest.raises(anthropic.NotFoundError) as raised:
        theirs.models.retrieve("other")
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["error"]["type"] == "not_found_error"
    assert "code" in httpx.get(f"{server.url}/v1/models/other").json()["error"]


@pytest.fixture(scope="module")
def several() -> Iterator[Running]:
    """Two models, whose answers have other lengths."""
    others = {"long": "simulated:step=0.0005,length=9"}
    with inside(
        "simulated:step=0.0005,length=4", names=("short",), others=others, tables=TABLES
    ) as found:
        yield found


TABLES = {"movies": "demo:movies"}
LENGTHS = {"short": 4, "long": 9}


def test_each_model_answers_to_its_name(several: Running) -> None:
    with openai.OpenAI(base_url=f"{several.url}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == list(LENGTHS)
        for name, length in LENGTHS.items():
            made = client.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "Is tea good?"}], max_tokens=50
            )
            assert (made.model, made.usage and made.usage.completion_tokens) == (name, length)
            text = client.completions.create(model=name, prompt=["a", "b"], max_tokens=50)
            assert text.usage is not None
            assert text.usage.completion_tokens == 2 * length
        with pytest.raises(openai.NotFoundError, match="Served: short, long"):
            client.completions.create(model="other", prompt="a")


@pytest.mark.parametrize(("model", "length"), [*LENGTHS.items(), (None, 4)])
def test_statements_name_a_model(several: Running, model: str | None, length: int) -> None:
    """The first one is usual. Answers of one are not those of another."""
    question = "Is it usual?" if model is None else "Good?"
    body = {"query": f"SELECT LLM('{question}', movietitle) FROM movies LIMIT 3"}
    more = {} if model is None else {"model": model}
    answer = httpx.post(f"{several.url}/v1/sql", json=body | more, timeout=60)
    assert answer.json()["report"]["output_tokens"] == 3 * length, answer.text


def test_what_all_models_do_is_told_together(several: Running) -> None:
    assert httpx.get(f"{several.url}/health").json() == {"status": "ok", "model": "short"}
    state = httpx.get(f"{several.url}/console/state").json()
    assert state["models"] == list(LENGTHS)
    assert state["cache"]["tokens"] == 2 * 65_536
    figures = httpx.get(f"{several.url}/metrics").text
    assert "relquery_engine_up 1.0" in figures
    assert f"relquery_cache_capacity_tokens {2 * 65_536:.1f}" in figures
