"""Adapters behind one server: the model that a request names chooses among them, on every route."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import openai
import pytest

from relquery.backends.local.open import load_backend
from relquery.model.networks.random import RandomSpec, RandomWeights
from relquery.prompt import Sampling, Span
from tests.model.oracle.adapters import write_adapter
from tests.serve.batches.conftest import begun, ended, results, uploaded
from tests.serve.conftest import Running, inside

MODEL = "random:layers=2,hidden=64,heads=2,context=512,seed=3"
NAMES = ("base", "one", "two")
TEXTS = [f"Text {at}" for at in range(4)]
LABELS = ["good", "bad", "odd", "fine"]
SCHEMA = "<schema name='s'><module name='m'>A text that many read.</module></schema>"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    weights = RandomWeights(RandomSpec.parse(MODEL), 100)
    shapes = {name: weights[name].shape for name in weights}
    at = tmp_path_factory.mktemp("adapters")
    return {
        name: str(write_adapter(at / name, shapes, seed=seed, by=0.2))
        for seed, name in enumerate(NAMES[1:])
    }


@pytest.fixture(scope="module")
def server(folders: dict[str, str]) -> Iterator[Running]:
    settings: dict[str, Any] = {"adapters": folders, "names": ("base",)}
    with inside(MODEL, **settings, options={"cache_tokens": 8192}) as found:
        yield found


@pytest.fixture(scope="module")
def expected(folders: dict[str, str]) -> dict[str, list[str | None]]:
    """What each answers by itself, in a process without the others."""
    found = {}
    for name in NAMES:
        model = f"{MODEL}+{folders[name]}" if name in folders else MODEL
        with closing(load_backend(model)) as backend:
            answers = dict(backend.answer([(Span(text),) for text in TEXTS], Sampling(8)))
            found[name] = [answers[at].text for at in range(len(TEXTS))]
    assert len({str(each) for each in found.values()}) == len(NAMES)
    return found


def chat(name: str, text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": name, "messages": messages, "max_tokens": 8, "temperature": 0}


def test_the_model_and_its_adapters_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list().data] == list(NAMES)
    with pytest.raises(openai.NotFoundError, match="'three' is not served"):
        client.chat.completions.create(**chat("three", "Hello"))


def test_a_chat_is_answered_by_the_adapter_that_it_names(
    client: openai.OpenAI, expected: dict[str, list[str | None]]
) -> None:
    found = {
        name: [client.chat.completions.create(**chat(name, text)) for text in TEXTS]
        for name in NAMES
    }
    assert {answer.model for answers in found.values() for answer in answers} == set(NAMES)
    texts = {
        name: [each.choices[0].message.content for each in answers]
        for name, answers in found.items()
    }
    assert texts == expected


def test_lines_of_a_batch_name_different_adapters(
    client: openai.OpenAI, expected: dict[str, list[str | None]]
) -> None:
    url = "/v1/chat/completions"
    lines = [
        {"custom_id": f"{name} {at}", "method": "POST", "url": url, "body": chat(name, text)}
        for at, text in enumerate(TEXTS)
        for name in NAMES
    ]
    batch = ended(client, begun(client, uploaded(client, lines)))
    found = results(client, batch.output_file_id)
    for name in NAMES:
        answers = [found[f"{name} {at}"]["body"] for at in range(len(TEXTS))]
        texts = [each["choices"][0]["message"]["content"] for each in answers]
        assert texts == expected[name]


def bodies(name: str) -> dict[str, dict[str, Any]]:
    """What is sent to each of the other routes, by its path."""
    classify = f"SELECT AI_CLASSIFY(repeat(chr(97 + i::INT), 9), {LABELS}) FROM range(16) AS t(i)"
    generate = {"model": name, "input": {"user": TEXTS[0]}, "max_tokens": 8, "temperature": 0}
    greedy = {"model": name, "max_tokens": 8, "temperature": 0}
    return {
        "/v1/completions": greedy | {"prompt": TEXTS},
        "/v1/responses": {
            "model": name,
            "input": TEXTS[0],
            "max_output_tokens": 16,
            "temperature": 0,
        },
        "/v1/messages": chat(name, TEXTS[0]),
        "/v1/score": {"model": name, "prompts": TEXTS, "labels": LABELS},
        "/v1/sql": {"model": name, "query": classify},
        "/v1/prompts": greedy
        | {"markup": SCHEMA, "prompt": "<prompt schema='s'><m/>Is it good?</prompt>"},
        "/v1/query/execute": {"g": generate},
    }


ANSWERS = {"answer", "content", "probabilities", "rows", "text"}


def answers_in(body: Any) -> list[str]:
    """What a body says, without names, numbers and times."""
    if isinstance(body, list):
        return [text for each in body for text in answers_in(each)]
    if not isinstance(body, dict):
        return []
    own = [json.dumps(body[key]) for key in sorted(ANSWERS & body.keys())]
    return own or [text for each in body.values() for text in answers_in(each)]


@pytest.mark.parametrize("path", bodies(""))
def test_every_route_asks_the_adapter_that_is_named(server: Running, path: str) -> None:
    def said(name: str) -> list[str]:
        answered = httpx.post(f"{server.url}{path}", json=bodies(name)[path], timeout=60)
        assert answered.status_code == 200, answered.text
        body = answered.json()
        return answers_in(body.get("output", body))

    found = {name: said(name) for name in NAMES}
    assert len({str(each) for each in found.values()}) == len(NAMES), found
    assert all(found.values())
    assert {name: said(name) for name in NAMES} == found, "it is not the adapter that differs"


def test_modules_are_reused_by_the_adapter_that_read_them(server: Running) -> None:
    """The report of a prompt tells what its own adapter has."""
    body = {
        "markup": SCHEMA.replace("='s'", "='r'").replace("A text", "Other text"),
        "prompt": "<prompt schema='r'><m/>Was it read?</prompt>",
        "max_tokens": 8,
    }

    def used(name: str) -> int:
        answered = httpx.post(f"{server.url}/v1/prompts", json=body | {"model": name}, timeout=60)
        return int(answered.json()["used"][0]["cached"])

    assert [used(name) for name in ("one", "one", "two", "two")] == [0, 26, 0, 26]
