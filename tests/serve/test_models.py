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
def named() -> Iterator[Running]:
    with inside("simulated:step=0.0005,length=4", names=NAMES) as found:
        yield found


@pytest.fixture
def theirs(named: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=named.url, api_key="none", max_retries=0) as found:
        yield found


@pytest.fixture
def client(named: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{named.url}/v1", api_key="none", max_retries=0) as found:
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


def test_errors_have_the_form_of_the_client(theirs: anthropic.Anthropic, named: Running) -> None:
    with pytest.raises(anthropic.NotFoundError) as raised:
        theirs.models.retrieve("other")
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["error"]["type"] == "not_found_error"
    assert "code" in httpx.get(f"{named.url}/v1/models/other").json()["error"]
