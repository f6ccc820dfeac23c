"""/v1/score, /tokenize and /detokenize"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import relquery as rq
from tests.cases import cases
from tests.serve.conftest import Running

REVIEWS = [
    f"Is the review positive?\nreviewcontent: {text}\n"
    for text in ("A wonderful film with a strong plot.", "Boring from beginning to end.")
]


def post(server: Running, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/score", json={"model": "demo"} | body, timeout=60)


@pytest.mark.parametrize("normalization", ["joint", "branch"])
def test_scores_are_those_of_the_engine(server: Running, normalization: Any) -> None:
    labels = ["Yes", "No"]
    given: Any = {"labels": labels, "normalization": normalization}
    found = post(server, prompts=REVIEWS, **given).json()
    with rq.Engine("demo") as engine:
        scores = engine.score(REVIEWS, **given)
    for each, score in zip(found["data"], scores, strict=True):
        assert each["probabilities"] == pytest.approx(score.probabilities, abs=1e-4)
        assert each["best"] == score.best
    assert found["usage"]["completion_tokens"] == 0
    assert found["usage"]["prompt_tokens"] == sum(score.prompt_tokens for score in scores)


def test_a_chat_is_scored_like_its_text(server: Running) -> None:
    chat = post(server, messages=[{"role": "user", "content": REVIEWS[0]}], labels=["Yes", "No"])
    text = post(server, prompts=REVIEWS[:1], labels=["Yes", "No"])
    (first,), (second,) = chat.json()["data"], text.json()["data"]
    assert first["probabilities"] == pytest.approx(second["probabilities"], abs=1e-4)


@pytest.mark.parametrize(("body", "param"), cases(__file__))
def test_what_cannot_be_scored_is_refused(server: Running, body: Any, param: str) -> None:
    found = post(server, **body)
    assert (found.status_code, found.json()["error"]["param"]) == (400, param)


def sent(server: Running, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=60)


@pytest.mark.parametrize("text", ["Hello world", "Grüße, 日本語\n\n", "<|end|>", ""])
def test_text_comes_back_from_its_tokens(server: Running, text: str) -> None:
    found = sent(server, "/tokenize", prompt=text).json()
    assert found["count"] == len(found["tokens"])
    assert sent(server, "/detokenize", tokens=found["tokens"]).json() == {"prompt": text}


def test_a_chat_is_counted_as_it_is_asked(server: Running) -> None:
    messages = [{"role": "user", "content": "Hello world"}]
    found = sent(server, "/tokenize", messages=messages).json()
    chat = sent(server, "/v1/chat/completions", model="demo", messages=messages, max_tokens=1)
    assert found["count"] == chat.json()["usage"]["prompt_tokens"]
    assert found["max_model_len"] == 2048
    found = sent(server, "/tokenize", prompt="Hello world", return_token_strs=True).json()
    assert "".join(found["token_strs"]) == "Hello world"
    assert sent(server, "/detokenize", tokens=[1, 4_000_000]).status_code == 400
