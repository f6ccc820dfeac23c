"""Calibration finds the costs of an executor whose costs are known."""

from __future__ import annotations

import numpy as np
import pytest

from relquery.config import EngineConfig
from relquery.engine.calibrate import calibrate, irregular, regular
from relquery.engine.clock import VirtualClock
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SimulatedExecutor

LIMITS = EngineConfig(max_num_batched_tokens=600, max_num_seqs=20, cache_tokens=20_000)


def test_it_finds_the_costs_of_a_simulated_executor_and_predicts_other_batches() -> None:
    clock, cost = VirtualClock(), LinearCost(1e-4, 0.03, 2e-3, 0.01, 1e-6)
    seen: list[tuple[str, int, int]] = []
    found = calibrate(
        SimulatedExecutor(clock, cost),
        LIMITS,
        clock,
        vocabulary=100,
        progress=lambda *step: seen.append(step),
    )
    assert found.r2 == pytest.approx(1)
    assert found.held_out == pytest.approx(1)
    assert found.cost.seconds(300, 7, 90) == pytest.approx(cost.seconds(300, 7, 90))
    assert seen[-1] == ("batches", len(seen), len(seen))


def test_batches_that_the_cache_cannot_hold_are_left_out() -> None:
    clock = VirtualClock()
    small = EngineConfig(max_num_batched_tokens=600, max_num_seqs=20, cache_tokens=1_000)
    executor = SimulatedExecutor(clock, LinearCost())
    found = calibrate(executor, small, clock, vocabulary=100)
    assert 6 < found.steps < len(list(regular(small)))


def test_shapes_stay_within_the_limits() -> None:
    for shape in [*regular(LIMITS), *irregular(LIMITS, np.random.default_rng(0), 60)]:
        assert sum(tokens for tokens, _ in shape.prompts) <= LIMITS.max_num_batched_tokens
        assert len(shape.decodes) <= LIMITS.max_num_seqs
