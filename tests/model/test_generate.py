"""Greedy output is the one of `transformers`' own generate, token for token, in every setting."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from relquery.arrays import TokenIds
from relquery.engine.request.request import Draw, Request
from relquery.engine.request.rules import Rules
from relquery.model.networks.load import LoadedModel, load
from tests.model.oracle.architectures import (
    NETWORKS,
    VOCABULARY,
    answers,
    engine_of,
    failing_second_layer,
    finished,
    generated,
    model_of,
    prompts_with_shared_prefixes,
)

TOKENS = 10


class Case(NamedTuple):
    """A network on our attention, prompts, and what the stock network generated for them."""

    model: LoadedModel
    prompts: list[TokenIds]
    expected: list[list[int]]


@cache
def case_of(name: str) -> Case:
    model, network = model_of(name)
    prompts = prompts_with_shared_prefixes(12)
    expected = [generated(network, prompt, TOKENS) for prompt in prompts]
    assert len({tuple(output) for output in expected}) > 6, "the network always says the same"
    return Case(model, prompts, expected)


SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no prefix caching": {"prefix_caching": False},
    "no segment sharing": {"segment_sharing": False},
    "neither": {"prefix_caching": False, "segment_sharing": False},
    "one request at a time": {"max_num_seqs": 1},
    "three requests at a time": {"max_num_seqs": 3},
    "chunks of 5 tokens": {"max_num_batched_tokens": 5, "max_num_seqs": 4},
    "chunks of 64 tokens": {"max_num_batched_tokens": 64},
    "blocks of 1": {"block_size": 1},
    "blocks of 4": {"block_size": 4, "max_num_batched_tokens": 33},
    "preemption": {"block_size": 4, "cache_tokens": 112},
    "preemption without caching": {
        "block_size": 4,
        "cache_tokens": 112,
        "prefix_caching": False,
        "max_num_batched_tokens": 40,
    },
}


@pytest.mark.parametrize("name", NETWORKS)
def test_greedy_output_is_that_of_transformers(name: str) -> None:
    model, prompts, expected = case_of(name)
    assert answers(model, prompts, TOKENS) == expected


@pytest.mark.parametrize("limits", SETTINGS.values(), ids=SETTINGS)
def test_greedy_output_is_that_of_transformers_in_every_setting(limits: dict[str, Any]) -> None:
    model, prompts, expected = case_of("gemma3")
    assert answers(model, prompts, TOKENS, **limits) == expected


def test_greedy_output_is_the_same_in_every_order_of_submission() -> None:
    model, prompts, expected = case_of("gemma3")
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(prompts)).tolist()
        found = answers(model, prompts, TOKENS, order, block_size=4, cache_tokens=200)
        assert found == expected


def test_prompts_are_really_served_from_the_cache() -> None:
    model, prompts, _ = case_of("gpt2")
    requests = [Request(i, prompt, TOKENS) for i, prompt in enumerate(prompts)]
    served = sum(each.cached or 0 for each in finished(engine_of(model, block_size=4), requests))
    assert served > 0.2 * sum(len(prompt) for prompt in prompts)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_step_that_fails_between_two_layers_changes_no_answer(name: str) -> None:
    model, prompts, expected = case_of(name)
    engine = engine_of(model, block_size=4)
    requests = [Request(i, prompt, TOKENS) for i, prompt in enumerate(prompts)]
    for request in requests:
        engine.submit(request)
    for _ in range(3):
        with failing_second_layer(), pytest.raises(KeyboardInterrupt):
            engine.step()
        engine.step()
    list(finished(engine, []))
    assert [request.output for request in requests] == expected


# ---- sampled and restricted answers, on one network


def test_sampled_output_depends_on_the_seed_and_not_on_the_batch() -> None:
    (llama, _), prompts = model_of("llama"), prompts_with_shared_prefixes(8)

    def sampled(seed: int, **limits: Any) -> list[list[int]]:
        draw = Draw(temperature=1.0, top_p=0.95, top_k=50, seed=seed)
        requests = [Request(i, prompt, TOKENS, draw) for i, prompt in enumerate(prompts)]
        list(finished(engine_of(llama, **limits), requests))
        return [request.output for request in requests]

    first = sampled(1)
    assert sampled(1, max_num_seqs=1) == first
    assert sampled(1, max_num_batched_tokens=9, block_size=1) == first
    assert sampled(1, prefix_caching=False, cache_tokens=96, block_size=4) == first
    assert sampled(2) != first


def test_of_allowed_answers_the_greedy_one_is_what_a_plain_loop_finds() -> None:
    (llama, _), prompts = model_of("llama"), prompts_with_shared_prefixes(8)
    choices = ((5, 6, 7), (5, 6, 8, 9), (10,), (11, 12), (11, 40))
    requests = [Request(i, p, TOKENS, rules=Rules(labels=choices)) for i, p in enumerate(prompts)]
    list(finished(engine_of(llama, block_size=4), requests))
    for request in requests:
        output: list[int] = []
        while tuple(output) not in choices:
            following = sorted(
                {c[len(output)] for c in choices if list(c[: len(output)]) == output}
            )
            tokens = np.concatenate((request.pieces[0].tokens, np.array(output, dtype=np.int32)))
            draw = Draw(allowed=tuple(following))
            one = Request(0, tokens, 1, draw)
            list(finished(engine_of(llama), [one]))
            output += one.output
        assert request.output == output


# ---- real weights

STORIES = [
    "Once upon a time, there was a little girl named Lily. She loved to play",
    "Once upon a time, there was a little girl named Lily. She had a dog",
    "Once upon a time, there was a little girl named Lily. One day, her mom said",
    "Once upon a time, there was a big",
    "Tom and his friend went to the park. They saw",
]


REAL: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no reuse": {"prefix_caching": False, "segment_sharing": False},
    "chunked": {"block_size": 4, "max_num_batched_tokens": 24},
    "preemption": {"block_size": 4, "cache_tokens": 160},
    "one at a time": {"max_num_seqs": 1, "block_size": 1},
}


@pytest.mark.data
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(each, id=name, marks=[] if name == "preemption" else pytest.mark.long)
        for name, each in REAL.items()
    ],
)
def test_real_weights_tell_the_same_stories(
    stories: Path, told: tuple[list[TokenIds], list[list[int]]], limits: dict[str, Any]
) -> None:
    prompts, expected = told
    model = load(str(stories), device="cpu")
    requests = [Request(i, prompt, 60, rules=Rules(model.end)) for i, prompt in enumerate(prompts)]
    list(finished(engine_of(model, **limits), requests))
    assert [request.output for request in requests] == expected


@pytest.fixture(scope="module")
def told(stories: Path) -> tuple[list[TokenIds], list[list[int]]]:
    """Prompts and the stock network's continuation, without the end token."""
    network = AutoModelForCausalLM.from_pretrained(stories, dtype=torch.float32)
    network.generation_config.pad_token_id = 0
    tokenizer = AutoTokenizer.from_pretrained(stories)
    prompts = [np.array(tokenizer.encode(text), dtype=np.int32) for text in STORIES]
    outputs = [generated(network, prompt, 60) for prompt in prompts]
    end = network.generation_config.eos_token_id
    return prompts, [output[: -1 if output[-1] == end else None] for output in outputs]


def test_prompts_of_these_tests_share_prefixes() -> None:
    prompts = prompts_with_shared_prefixes(12)
    assert sum(prompt[0] == prompts[0][0] for prompt in prompts) == 12
    assert max(int(prompt.max()) for prompt in prompts) < VOCABULARY
