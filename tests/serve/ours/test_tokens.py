"""/tokenize and /detokenize"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.serve.conftest import Running


def post(server: Running, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=60)


@pytest.mark.parametrize("text", ["Hello world", "Grüße, 日本語\n\n", "<|end|>", ""])
def test_text_comes_back_from_its_tokens(server: Running, text: str) -> None:
    found = post(server, "/tokenize", prompt=text).json()
    assert found["count"] == len(found["tokens"])
    assert post(server, "/detokenize", tokens=found["tokens"]).json() == {"prompt": text}


def test_a_chat_is_counted_as_it_is_asked(server: Running) -> None:
    messages = [{"role": "user", "content": "Hello world"}]
    found = post(server, "/tokenize", messages=messages).json()
    chat = post(server, "/v1/chat/completions", model="demo", messages=messages, max_tokens=1)
    assert found["count"] == chat.json()["usage"]["prompt_tokens"]
    assert found["max_model_len"] == 2048


def test_tokens_have_texts(server: Running) -> None:
    found = post(server, "/tokenize", prompt="Hello world", return_token_strs=True).json()
    assert "".join(found["token_strs"]) == "Hello world"


def test_unknown_tokens_are_refused(server: Running) -> None:
    assert post(server, "/detokenize", tokens=[1, 4_000_000]).status_code == 400
