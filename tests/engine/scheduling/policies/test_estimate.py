"""Batch decomposition does what Algorithm 1 of paper 003 says, request by request."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost
from relquery.engine.scheduling.policies.remaining import Batches, decompose

COST = LinearCost(0.001, 0.5, 0.01, 0.25)


def algorithm_1(
    uncached: list[int], outputs: int, cap: int, seats: int, tokens: int, left: list[int]
) -> tuple[list[list[int]], list[int]]:
    """Prefill batches as lists of token counts, decode batches as numbers of requests."""
    prefills: list[list[int]] = []
    decodes: list[int] = []
    batch: list[int] = []
    inside = list(left)  # tokens that each request in the decode batch still answers
    held = 0

    def finish() -> None:
        nonlocal batch, inside, held
        if batch:
            prefills.append(batch)
        while any(inside):
            decodes.append(sum(one > 0 for one in inside))
            inside = [max(0, one - 1) for one in inside]
        batch, inside, held = [], [], 0

    for one in uncached:
        if inside and (one + held > cap or len(inside) + 1 > seats):
            finish()
        if batch and one + sum(batch) > tokens:
            prefills.append(batch)
            batch = []
        batch.append(one)
        inside.append(outputs)
        held += one
    finish()
    return prefills, decodes


@given(
    uncached=st.lists(st.integers(1, 30), max_size=25),
    outputs=st.integers(1, 6),
    blocks=st.integers(1, 10),
    seats=st.integers(1, 8),
    tokens=st.integers(5, 60),
    left=st.lists(st.integers(1, 6), max_size=6),
)
def test_it_equals_the_algorithm_request_by_request(
    uncached: list[int], outputs: int, blocks: int, seats: int, tokens: int, left: list[int]
) -> None:
    left = left[:seats]
    limits = EngineConfig(
        cache_tokens=16 * blocks, max_num_seqs=seats, max_num_batched_tokens=tokens
    )
    prefills, decodes = algorithm_1(uncached, outputs, 16 * blocks, seats, tokens, left)
    found = decompose(
        np.array(uncached, np.float64), np.full(len(uncached), float(outputs)), limits, left
    )
    assert found == Batches(sum(map(sum, prefills)), len(prefills), sum(decodes), len(decodes))


def test_what_is_unfinished_of_a_long_prompt_is_a_batch_of_its_own() -> None:
    found = decompose(np.empty(0), np.empty(0), EngineConfig(), [4], unfinished=70.0)
    assert found == Batches(70.0, 1, 4, 4)


def test_its_seconds_are_those_of_all_its_batches() -> None:
    batches = Batches(prefill_tokens=300, prefill_steps=2, decode_requests=40, decode_steps=8)
    prefill = COST.seconds(100, 0) + COST.seconds(200, 0)
    assert batches.seconds(COST) == pytest.approx(prefill + 8 * COST.seconds(0, 5))
