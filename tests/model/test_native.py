"""The native runtime, against `transformers`: greedy output, and spans under a dense mask."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given

from relquery.arrays import TokenIds
from relquery.config import RELOCATIONS
from relquery.engine.request.request import Request
from relquery.model.networks.families.families import FAMILIES
from tests.model.oracle.architectures import (
    build,
    engine_of,
    finished,
    generated,
    model_of,
    placing_of,
    prompts_with_shared_prefixes,
)
from tests.model.oracle.dense import dense_logits
from tests.model.test_generate import SETTINGS, TOKENS
from tests.model.test_spans import Spec, dense_chain, engine_chain, prompts, schemas

NAMES = [
    "gemma2", "gemma3", "granite", "linear", "llama", "llama3", "longrope", "mistral", "phi3",
    "phi3_partial", "qwen2", "qwen3", "smollm3", "yarn",
]  # fmt: skip


class Case(NamedTuple):
    """A network in the native runtime, prompts, and what the stock network generated for them."""

    model: Any
    prompts: list[TokenIds]
    expected: list[list[int]]


@cache
def case_of(name: str) -> Case:
    model, network = model_of(name, "native")
    asked = [
        each for each in prompts_with_shared_prefixes(12) if len(each) + TOKENS <= model.context
    ]
    return Case(model, asked, [generated(network, prompt, TOKENS) for prompt in asked])


def answered(case: Case, **limits: Any) -> list[list[int]]:
    requests = [Request(i, prompt, TOKENS) for i, prompt in enumerate(case.prompts)]
    outputs = {each.id: each.output for each in finished(engine_of(case.model, **limits), requests)}
    return [outputs[each.id] for each in requests]


@pytest.mark.parametrize("name", NAMES)
def test_greedy_output_is_that_of_transformers(name: str) -> None:
    case = case_of(name)
    assert answered(case) == case.expected


@pytest.mark.parametrize("setting", SETTINGS)
def test_greedy_output_is_that_of_transformers_in_every_setting(setting: str) -> None:
    case = case_of("gemma3")
    assert answered(case, **SETTINGS[setting]) == case.expected


def check(name: str, specs: list[Spec], **limits: Any) -> None:
    """Every token is the likeliest of the logits that the dense reference has there."""
    model, stock = model_of(name, "native")
    engine = engine_of(model, **{"cache_tokens": 2048, "block_size": 4} | limits)
    placing = placing_of(model, limits.get("relocation", "queries"))
    requests = [Request(i, engine_chain(spec), 3, placing=placing) for i, spec in enumerate(specs)]
    list(finished(engine, requests))
    for request, spec in zip(requests, specs, strict=True):
        logits = dense_logits(stock, dense_chain((*spec, *request.output))).numpy()
        first = request.prompt_tokens - 1
        for at, token in enumerate(request.output):
            row = logits[first + at]
            assert row[token] >= row.max() - 1e-4 * max(1.0, float(np.abs(row).max()))


@pytest.mark.parametrize("relocation", RELOCATIONS)
@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3_partial"])
def test_spans_at_other_positions_equal_the_dense_reference(name: str, relocation: str) -> None:
    @given(prompts())
    def holds(specs: list[Spec]) -> None:
        check(name, specs, relocation=relocation)

    holds()


@pytest.mark.parametrize("name", ["llama", "gemma3", "mistral"])
def test_modules_of_a_schema_equal_the_dense_reference(name: str) -> None:
    @given(schemas())
    def holds(specs: list[Spec]) -> None:
        check(name, specs)
        check(name, specs, max_num_batched_tokens=16, slice_tokens=5, max_num_seqs=4)

    holds()


def test_every_family_has_a_network_here() -> None:
    kinds = {build(name).config.model_type for name in NAMES}
    assert kinds == {*FAMILIES}
