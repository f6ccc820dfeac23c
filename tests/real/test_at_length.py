"""Real models against `transformers`, which computes the same there and then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import relquery as rq
from relquery.backends.local.open import load_backend
from relquery.prompt import Answer, Prompt, Role, Sampling, Span
from tests.real.conftest import needed
from tests.real.golden import spans_answer, spans_of
from tests.real.prompts import rows, sentences
from tests.real.reference import Reference
from tests.real.test_smollm2 import given, spans

pytestmark = pytest.mark.long
COUNT, TOKENS = 200, 12
ODD = [
    "\ufffd\u0000\u0001 bytes",
    "\U00013080\U000131a3 and \ua66e",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\u202eright to left",
    "zero\u200bwidth\ufeff",
    "\ufdfa \uff71 \u2177",
    "\U0001f9ff" * 20,
]


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def folder(request: pytest.FixtureRequest) -> Path:
    return needed(request.param)


only_smollm2 = pytest.mark.parametrize("folder", ["smollm2"], indirect=True)
"""Gemma's base model has no chat template, and its tokenizer puts a token before each text."""


@pytest.fixture(scope="module")
def exact(folder: Path) -> Reference:
    return Reference(folder, torch.float32)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[rq.Engine]:
    with rq.Engine(str(folder), dtype="float32") as opened:
        yield opened


@cache
def tokenizer_of(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def prompt_of(folder: Path, text: str) -> str | Prompt:
    """A user's message; for Gemma's base model, which has no chat template, the very tokens."""
    if folder.name == "smollm2":
        return text
    tokenizer = tokenizer_of(folder)
    return (Span(tuple(tokenizer(text)["input_ids"]), Role.NONE),)


def check(exact: Reference, found: list[Answer], texts: list[str]) -> None:
    """Each answer is the greedy one of the stock network, token for token."""
    for text, output in zip(texts, given(found), strict=True):
        assert exact.would_answer(exact.chat(("user", text)), output, TOKENS), text


def test_float32_gives_the_same_tokens(folder: Path, engine: rq.Engine, exact: Reference) -> None:
    asked = rows(COUNT)
    prompts = [prompt_of(folder, row.prompt) for row in asked]
    found = engine.submit(prompts, max_tokens=TOKENS).result()
    check(exact, found, [row.prompt for row in asked])


def test_bfloat16_is_as_near_to_float32_as_stock_implementations(
    folder: Path, exact: Reference
) -> None:
    """By the log-probabilities of each token of 40 prompts: some 1,200 to 2,400 numbers."""
    prompts = [exact.chat(("user", row.prompt)) for row in rows(2 * COUNT)[::10]]
    backend = load_backend(str(folder), dtype="bfloat16")
    with closing(backend):
        spans = [(Span(tuple(each), Role.NONE),) for each in prompts]
        answers = dict(backend.answer(spans, Sampling(1, prompt_logprobs=0)))
    ours = np.concatenate(
        [
            [token.logprob for token in (answers[number].prompt_logprobs or ())[1:]]
            for number in range(len(prompts))
        ]
    )
    expected = prompt_logprobs(exact, prompts)
    stock = [
        prompt_logprobs(Reference(folder, torch.bfloat16, attention), prompts)
        for attention in ("eager", "sdpa")
    ]
    errors = [float(np.square(found - expected).mean()) for found in (ours, *stock)]
    assert errors[0] <= max(errors[1:]), errors


def prompt_logprobs(reference: Reference, prompts: list[list[int]]) -> np.ndarray:
    """The log-probability of each token after a prompt's first, given those before it."""
    return np.concatenate(
        [
            reference.logits(tokens)[:-1]
            .double()
            .log_softmax(-1)
            .gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
            .numpy()
            for tokens in prompts
        ]
    )


@only_smollm2
@pytest.mark.parametrize("begins", [(), (0, 40, 140, 300)], ids=["spans", "modules"])
def test_spans_attend_to_themselves_alone(
    engine: rq.Engine, exact: Reference, begins: tuple[int, ...]
) -> None:
    """Passages that follow one another, and modules with positions of their own."""
    asked = [spans_of(number, 20) for number in range(20)]
    prompts = [spans(texts, begins or (None,) * 4) for texts in asked]
    expected = [spans_answer(exact, texts, TOKENS, begins) for texts in asked]
    for _ in range(2):  # the second time the states are in the cache
        assert given(engine.submit(prompts, max_tokens=TOKENS).result()) == expected


def test_text_of_bytes_without_tokens(folder: Path, engine: rq.Engine, exact: Reference) -> None:
    texts = [f"Repeat: {text}" for text in ODD]
    prompts = [prompt_of(folder, text) for text in texts]
    check(exact, engine.submit(prompts, max_tokens=TOKENS).result(), texts)


@only_smollm2
def test_a_chat_of_five_turns(engine: rq.Engine, exact: Reference) -> None:
    turns: list[tuple[str, str]] = []
    for text in sentences(5):
        turns.append(("user", text))
        prompt = tuple(Span(said, Role(role), begins=True) for role, said in turns)
        (answer,) = engine.submit([prompt], max_tokens=TOKENS).result()
        assert given([answer]) == [exact.greedy(exact.chat(*turns), TOKENS)]
        turns.append(("assistant", (answer.text or "").strip()))


@only_smollm2
def test_a_limit_gives_the_rows_that_pass(folder: Path) -> None:
    asked = rows(COUNT)[:40]
    query = """SELECT id FROM (SELECT unnest($ids) AS id, unnest($texts) AS text)
        WHERE AI_FILTER('Is this review positive? Answer Yes or No.', text) {}"""
    with rq.connect(str(folder), order="original", dtype="float32") as con:
        given = {"ids": [row.row for row in asked], "texts": [row.text for row in asked]}
        whole = [row[0] for row in con.sql(query.format(""), given).fetchall()]
        limited = [row[0] for row in con.sql(query.format("LIMIT 5"), given).fetchall()]
    assert len(limited) == min(5, len(whole))
    assert set(limited) <= set(whole)


def test_an_encoder_gives_the_vectors_of_its_own_network() -> None:
    folder, texts = needed("minilm"), sentences(200)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    network: Any = AutoModel.from_pretrained(folder).eval()
    expected = []
    with torch.inference_mode():
        for text in texts:  # one at a time: nothing is padded
            states = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            expected.append(torch.nn.functional.normalize(states.mean(0), dim=0).numpy())
    embedder = rq.load_embedder(str(folder))
    assert embedder is not None
    found = np.asarray(embedder.embed(texts))
    found /= np.linalg.norm(found, axis=1, keepdims=True)  # as an index does
    assert np.abs(found - np.stack(expected)).max() < 1e-5
