"""What changes logits before a token is chosen, beside transformers' own processors and numpy."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.engine.requests.request import Draw, History
from relquery.errors import ConfigError
from relquery.ledger.keys import answer_keys
from relquery.model import sampler
from relquery.model.networks.random import byte_tokenizer
from relquery.model.sampler import Logits, follow_draws
from relquery.prompt import Adjustments, Answer, Finish, Role, Sampling, Span
from tests.model.oracle.architectures import build, native, prompts_with_shared_prefixes

WORDS = 40
NAMES = tuple(Adjustments.__dataclass_fields__)


def history(given: Adjustments, prompt: Any = (), output: Any = (), end: Any = ()) -> History:
    return History(given, np.unique(np.array(prompt, np.int64)), list(output), tuple(end))


def adjusted(row: Any, *given: Any, **more: Any) -> Any:
    logits = row.copy()
    sampler._adjust(logits, history(*given, **more))
    return logits


@pytest.fixture
def row() -> Any:
    return np.random.default_rng(3).normal(0, 3, WORDS).astype(np.float32)


PROMPT, OUTPUT = (1, 2, 2, 7, 30), (7, 9, 9, 9, 12)


def through(processor: Any, row: Any, ids: Any = (*PROMPT, *OUTPUT)) -> Any:
    return processor(torch.tensor([ids]), torch.from_numpy(row.copy())[None])[0].numpy()


@pytest.mark.parametrize("penalty", [1.3, 0.7])
def test_a_repetition_penalty_is_that_of_transformers(row: Any, penalty: float) -> None:
    theirs = through(RepetitionPenaltyLogitsProcessor(penalty), row)
    ours = adjusted(row, Adjustments(repetition_penalty=penalty), PROMPT, OUTPUT)
    np.testing.assert_array_equal(ours, theirs)


def test_a_bias_and_a_least_length_are_those_of_transformers(row: Any) -> None:
    bias = {3: 4.5, 11: -100.0}
    theirs = through(SequenceBiasLogitsProcessor([[[t], b] for t, b in bias.items()]), row)
    np.testing.assert_array_equal(adjusted(row, Adjustments(logit_bias=bias)), theirs)  # type: ignore[arg-type]
    for least in (5, 6):
        processor = MinNewTokensLengthLogitsProcessor(len(PROMPT), least, [0, 4])
        ours = adjusted(row, Adjustments(min_tokens=least), output=OUTPUT, end=(0, 4, 999))
        np.testing.assert_array_equal(ours, through(processor, row))


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_only_tokens_that_min_p_of_transformers_keeps_are_drawn(
    row: Any, temperature: float
) -> None:
    kept = np.flatnonzero(np.isfinite(through(MinPLogitsWarper(0.2), row / temperature)))
    given = history(Adjustments(min_p=0.2))
    draws = [Draw(temperature, seed=seed, history=given) for seed in range(600)]
    logits = Logits(np.zeros(600, np.int64), lambda _: row)
    assert Counter(follow_draws(logits, draws)).keys() == set(kept.tolist())


def test_penalties_count_the_answer_alone_and_the_bias_comes_first(row: Any) -> None:
    given = Adjustments(0.5, 0.25, 1.5, ((9, 2.0),))
    expected = row.astype(np.float64)
    expected[9] += 2.0
    for token in {*PROMPT, *OUTPUT}:
        expected[token] *= 1.5 if expected[token] < 0 else 1 / 1.5
    for token, count in Counter(OUTPUT).items():
        expected[token] -= 0.5 * count + 0.25
    np.testing.assert_allclose(adjusted(row, given, PROMPT, OUTPUT), expected, rtol=1e-5)


def test_greedy_draws_follow_them_and_others_beside_them_do_not(row: Any) -> None:
    best = int(row.argmax())
    given = history(Adjustments(logit_bias=((best, -100.0),)))
    logits = Logits(np.array([best, best]), lambda _: row)
    second = int(np.argsort(-row)[1])
    assert follow_draws(logits, [Draw(history=given), Draw()]) == [second, best]


@pytest.fixture(scope="module")
def network() -> Any:
    return build("llama")


def answered(network: Any, given: Adjustments, tokens: int = 24, **config: Any) -> list[Answer]:
    model = native(network, tokenizer=byte_tokenizer())
    backend = EmbeddedBackend(model, EngineConfig(**{"cache_tokens": 4096} | config))
    prompts = [(Span(tuple(ids.tolist()), Role.NONE),) for ids in prompts_with_shared_prefixes(4)]
    found = dict(backend.answer(prompts, Sampling(tokens, adjustments=given)))
    backend.close()
    return [found[at] for at in range(4)]


@pytest.mark.parametrize("config", [{}, {"max_num_seqs": 1}, {"max_num_batched_tokens": 5}])
def test_answers_with_a_repetition_penalty_are_those_of_generate(
    network: Any, config: dict[str, Any]
) -> None:
    ours = answered(network, Adjustments(repetition_penalty=1.6, ignore_eos=True), **config)
    plain = answered(network, Adjustments(ignore_eos=True))
    for ids, answer in zip(prompts_with_shared_prefixes(4), ours, strict=True):
        prompt = torch.from_numpy(ids).long()[None]
        with torch.inference_mode():
            output = network.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=24,
                do_sample=False,
                repetition_penalty=1.6,
                eos_token_id=None,
            )
        assert list(answer.tokens or ()) == output[0, len(ids) :].tolist()
    assert [each.tokens for each in plain] != [each.tokens for each in ours]


def test_an_answer_has_its_least_length_or_does_not_end(network: Any) -> None:
    always_ends = dict.fromkeys(native(network, tokenizer=byte_tokenizer()).end, 100.0)
    short = answered(network, Adjustments(logit_bias=always_ends))  # type: ignore[arg-type]
    assert {(each.finish, each.output_tokens) for each in short} == {(Finish.STOP, 0)}
    least = Adjustments(logit_bias=always_ends, min_tokens=6)  # type: ignore[arg-type]
    assert {each.output_tokens for each in answered(network, least)} == {6}
    endless = Adjustments(logit_bias=always_ends, ignore_eos=True)  # type: ignore[arg-type]
    found = answered(network, endless)
    assert {(each.finish, each.output_tokens) for each in found} == {(Finish.LENGTH, 24)}
    with pytest.raises(ConfigError, match="logit_bias has token 999"):
        answered(network, Adjustments(logit_bias=((999_999, 1.0),)))


def test_what_asks_for_nothing_is_nothing_and_all_else_has_keys_of_its_own() -> None:
    assert Sampling(adjustments=Adjustments()) == Sampling()
    given: list[dict[str, Any]] = [
        {"frequency_penalty": 0.5},
        {"presence_penalty": 0.5},
        {"repetition_penalty": 1.5},
        {"logit_bias": {5: 1}},
        {"min_p": 0.5},
        {"min_tokens": 5},
        {"ignore_eos": True},
    ]
    assert [next(iter(each)) for each in given] == list(NAMES)
    plain = Sampling()
    every = [plain, *(replace(plain, adjustments=Adjustments(**each)) for each in given)]
    assert len({answer_keys("m", [(Span("a"),)], each)[0] for each in every}) == len(every)


@pytest.mark.parametrize(
    "given",
    [
        {"frequency_penalty": 2.1},
        {"presence_penalty": "1"},
        {"repetition_penalty": 0},
        {"repetition_penalty": 5e-324},
        {"min_p": -0.1},
        {"min_tokens": 1.5},
        {"ignore_eos": 1},
        {"logit_bias": {-1: 1}},
        {"logit_bias": {1: 101}},
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Adjustments(**given)


def test_what_they_cannot_go_with_is_refused() -> None:
    for more in ({"labels": ("a",)}, {"schema": "{}"}, {"max_tokens": 2}):
        with pytest.raises(ConfigError, match="min_tokens"):
            Sampling(**more, adjustments=Adjustments(min_tokens=3))
