"""An endpoint's vectors come in the order of the texts, whatever the order of the replies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relquery.backends.embedding.endpoint import Endpoint
from relquery.backends.embedding.load import embedder_of, load_embedder
from relquery.backends.provider.config import ProviderConfig
from relquery.errors import ConfigError, ModelError, RequestError
from tests.backends.provider.chat_server import Reply, failure, serving

ROUTE = "/v1/embeddings"


def vector_of(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 97)]


def embeddings(body: dict[str, Any]) -> Reply:
    data = [
        {"object": "embedding", "index": at, "embedding": vector_of(text)}
        for at, text in enumerate(body["input"])
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return Reply({"object": "list", "data": data[::-1], "model": "m", "usage": usage})


def test_vectors_come_in_the_order_of_the_texts() -> None:
    texts = [f"text {i}" * (i % 5) for i in range(1000)]
    with serving(embeddings, ROUTE) as server:
        endpoint = Endpoint("m", ProviderConfig(base_url=server.url, api_key="k"))
        found = endpoint.embed(texts)
        assert endpoint.embed([]).size == 0
    np.testing.assert_array_equal(found, [vector_of(text or " ") for text in texts])
    assert len(server.asked) == 4
    assert all(text for body in server.asked for text in body["input"])


def test_dimensions_are_sent_and_are_part_of_the_name() -> None:
    with serving(embeddings, ROUTE) as server:
        options = {"base_url": server.url, "api_key": "k"}
        endpoint = load_embedder("openai:m", dimensions=2, **options)
        assert endpoint is not None
        endpoint.embed(["a"])
        assert server.asked[0]["dimensions"] == 2
        plain = load_embedder("openai:m", **options)
        assert plain is not None
        assert plain.name != endpoint.name


def test_a_refused_key_and_a_failure_are_told() -> None:
    def refuse(body: dict[str, Any]) -> Reply:
        return failure(401, "bad key") if body["input"] == ["key"] else failure(400, "too long")

    with serving(refuse, ROUTE) as server:
        endpoint = Endpoint("m", ProviderConfig(base_url=server.url, api_key="k", max_retries=0))
        with pytest.raises(ModelError, match="refuses the API key"):
            endpoint.embed(["key"])
        with pytest.raises(RequestError, match=r"embedder openai:m.* failed. .*too long"):
            endpoint.embed(["text"])


def test_names_and_options_are_checked() -> None:
    assert load_embedder("tfidf") is None
    with pytest.raises(ConfigError, match="pooling"):
        load_embedder("tfidf", pooling="cls")
    with pytest.raises(ConfigError, match="dimension"):
        load_embedder("openai:m", dimension=3, api_key="k")
    with pytest.raises(ConfigError, match="dimensions is 0"):
        load_embedder("openai:m", dimensions=0, api_key="k")
    for wrong in ["", 7]:
        with pytest.raises(ConfigError, match=f"embedder is {wrong!r}"):
            embedder_of(wrong)  # type: ignore[arg-type]
