"""The list of models, with OpenAI's client."""

from __future__ import annotations

import openai
import pytest


def test_models_are_listed_and_found_by_name(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "demo"
    assert client.models.retrieve("demo") == model


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="'some/other' is not served"):
        client.models.retrieve("some/other")
