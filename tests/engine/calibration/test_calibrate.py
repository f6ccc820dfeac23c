"""Calibration finds the costs of an executor whose costs are known."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from relquery.config import EngineConfig
from relquery.engine.calibration.steps import Shape, calibrate, irregular, rapid, regular
from relquery.engine.clock import VirtualClock
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import SimulatedExecutor
from relquery.errors import ConfigError
from tests.engine.harness import for_each

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


@for_each("cache_tokens", [20_000, 500, 40])
def test_in_haste_it_finds_the_same_costs(cache_tokens: int) -> None:
    clock, cost = VirtualClock(), LinearCost(1e-6, 3e-4, 2e-5, 1e-4, 1e-8)
    limits = replace(LIMITS, cache_tokens=cache_tokens)
    executor = SimulatedExecutor(clock, cost)
    found = calibrate(executor, limits, clock, vocabulary=100, quick=True)
    assert found.steps == len(list(rapid(limits)))
    assert found.held_out is None
    for name in LinearCost.__slots__:
        assert getattr(found.cost, name) == pytest.approx(getattr(cost, name)), name


def test_in_haste_a_slow_machine_is_not_asked_for_large_batches() -> None:
    clock, cost = VirtualClock(), LinearCost(0.01, 0.4, 0.02, 0.6, 1e-4)
    executor = SimulatedExecutor(clock, cost)
    found = calibrate(executor, LIMITS, clock, vocabulary=100, quick=True)
    assert found.steps == 8
    assert found.cost.seconds(600, 0) == pytest.approx(cost.seconds(600, 0))
    assert clock.now() < 12


def test_no_request_is_longer_than_the_context() -> None:
    shape = Shape(((200, 100), (50, 500)), (10, 900))
    assert shape.within(120) == Shape(((120, 0), (50, 70)), (10, 119))
    clock = VirtualClock()
    executor = SimulatedExecutor(clock, LinearCost(1e-5, 1e-3, 1e-4, 1e-3, 1e-7))
    found = calibrate(executor, LIMITS, clock, vocabulary=100, longest=120, quick=True)
    assert asdict(found.cost) == pytest.approx(asdict(executor.cost))


def test_batches_that_the_cache_cannot_hold_are_left_out() -> None:
    clock = VirtualClock()
    small = EngineConfig(max_num_batched_tokens=600, max_num_seqs=20, cache_tokens=1_000)
    executor = SimulatedExecutor(clock, LinearCost())
    found = calibrate(executor, small, clock, vocabulary=100)
    assert 6 < found.steps < len(list(regular(small)))


def test_what_a_short_context_leaves_of_a_batch_may_fit_the_cache() -> None:
    clock, cost = VirtualClock(), LinearCost(1e-4, 1e-3, 1e-4, 1e-3, 1e-7)
    small = replace(LIMITS, cache_tokens=160)
    found = calibrate(SimulatedExecutor(clock, cost), small, clock, vocabulary=100, longest=80)
    assert asdict(found.cost) == pytest.approx(asdict(cost))
    assert found.steps > sum(shape.slots <= 160 for shape in regular(small))


@for_each("longest", [None, 100])
def test_the_least_cache_is_named_and_is_enough(longest: int | None) -> None:
    clock = VirtualClock()
    executor = SimulatedExecutor(clock, LinearCost(1e-4, 1e-3, 1e-4, 1e-3, 1e-7))

    def measured(cache_tokens: int) -> int:
        limits = replace(LIMITS, cache_tokens=cache_tokens)
        return calibrate(executor, limits, clock, vocabulary=100, longest=longest).steps

    with pytest.raises(ConfigError, match=r"holds 48 tokens.*Set cache_tokens") as caught:
        measured(48)
    assert clock.now() == 0
    least = int(re.findall(r"\d+", str(caught.value))[1])
    assert measured(least) >= 6
    with pytest.raises(ConfigError, match=f"at least {least}"):
        measured(least - 16)


def test_shapes_stay_within_the_limits() -> None:
    shapes = [*regular(LIMITS), *irregular(LIMITS, np.random.default_rng(0), 60)]
    for shape in [*shapes, *rapid(LIMITS)]:
        assert sum(tokens for tokens, _ in shape.prompts) <= LIMITS.max_num_batched_tokens
        assert len(shape.decodes) <= LIMITS.max_num_seqs
