"""Vectors and rankings over HTTP are those of transformers' network, pooled and of length 1."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
from transformers import AutoModel

from relquery.errors import ConfigError
from relquery.serve.scores import EmbeddingService
from tests.model.encoder.test_encoder import folder as encoder_folder
from tests.model.encoder.test_encoder import states
from tests.serve.conftest import Running, inside

encoder = encoder_folder
TEXTS = ["the tower", "a bridge over the river", "sky " * 30]


@pytest.fixture(scope="module")
def running(encoder: Path) -> Iterator[Running]:
    with inside("random:layers=1,hidden=32,heads=2", embedder=str(encoder)) as found:
        yield found


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as found:
        yield found


@pytest.fixture(scope="module")
def expected(encoder: Path) -> Any:
    """(texts, dimensions) of the stock network."""
    stock = AutoModel.from_pretrained(encoder).eval()
    vectors = torch.stack([states(stock, encoder, text).mean(dim=0) for text in TEXTS])
    return torch.nn.functional.normalize(vectors).numpy()


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_vectors_are_those_of_the_stock_network(
    client: openai.OpenAI, encoder: Path, expected: Any, form: Any
) -> None:
    more = {} if form is None else {"encoding_format": form}
    found = client.embeddings.create(model=str(encoder), input=TEXTS, **more)
    assert [each.index for each in found.data] == [0, 1, 2]
    given = [each.embedding for each in found.data]
    if form == "base64":  # which the SDK decodes only where it has asked for it itself
        given = [np.frombuffer(base64.b64decode(str(each)), "<f4").tolist() for each in given]
    np.testing.assert_allclose(np.array(given), expected, atol=1e-5)
    assert found.usage.prompt_tokens == found.usage.total_tokens == 4 + 7 + 32
    alone = client.embeddings.create(model=str(encoder), input=TEXTS[1], dimensions=32)
    np.testing.assert_allclose(alone.data[0].embedding, expected[1], atol=1e-5)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"input": "sky " * 60}, "longer than the 40 tokens"),
        ({"input": [[1, 2]]}, "no token ids"),
        ({"input": ["a", ""]}, "input"),
        ({"input": []}, "input"),
        ({"dimensions": 16}, "vectors have 32"),
        ({"extra_body": {"dimension": 16}}, "dimensions"),
    ],
)
def test_what_cannot_be_embedded_is_refused(
    client: openai.OpenAI, encoder: Path, more: dict[str, Any], named: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=named):
        client.embeddings.create(**{"model": str(encoder), "input": "the tower"} | more)


def test_longer_texts_are_cut_where_a_client_says_so(running: Running, encoder: Path) -> None:
    cut = {"model": str(encoder), "truncate_prompt_tokens": -1}
    for path, body in (
        ("embeddings", {"input": "sky " * 60}),
        ("rerank", {"query": "a", "documents": ["sky " * 60]}),
    ):
        found = httpx.post(f"{running.url}/v1/{path}", json=cut | body).json()
        assert 40 <= found["usage"]["prompt_tokens"] <= 43
        found = httpx.post(
            f"{running.url}/v1/{path}", json=cut | body | {"truncate_prompt_tokens": 5}
        )
        assert (found.status_code, found.json()["error"]["param"]) == (
            400,
            "truncate_prompt_tokens",
        )


def test_documents_are_ranked_by_their_cosines(
    running: Running, encoder: Path, expected: Any
) -> None:
    body: dict[str, Any] = {
        "model": str(encoder),
        "query": TEXTS[0],
        "documents": [TEXTS[2], {"text": TEXTS[1]}, TEXTS[0]],
    }
    found = httpx.post(f"{running.url}/v1/rerank", json=body).json()
    cosines = {at: float(expected[2 - at] @ expected[0]) for at in range(3)}
    order = sorted(cosines, key=lambda at: -cosines[at])
    assert [each["index"] for each in found["results"]] == order
    for each in found["results"]:
        assert each["relevance_score"] == pytest.approx(cosines[each["index"]], abs=1e-5)
        assert each["document"]["text"] == TEXTS[2 - each["index"]]
    assert found["usage"]["total_tokens"] == 2 * 4 + 7 + 32
    first = body | {"top_n": 1, "return_documents": False}
    best = httpx.post(f"{running.url}/v2/rerank", json=first).json()["results"]
    assert best == [{"index": 2, "relevance_score": pytest.approx(1.0, abs=1e-5)}]


def test_a_name_that_is_not_served_is_not_found(client: openai.OpenAI, server: Running) -> None:
    with pytest.raises(openai.NotFoundError, match="encoder 'demo' is not served"):
        client.embeddings.create(model="demo", input="x")
    body = {"model": "demo", "input": "x"}
    without = httpx.post(f"{server.url}/v1/embeddings", json=body)
    assert without.status_code == 404
    assert "--embedder" in without.json()["error"]["message"]


def test_embedders_that_are_no_encoders_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for name in ("tfidf", "openai:text-embedding-3-small"):
        with pytest.raises(ConfigError, match="an encoder on this machine"):
            EmbeddingService(name)
