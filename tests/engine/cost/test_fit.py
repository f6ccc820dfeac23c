"""The linear cost model, and fitting, which finds the parameters that made the steps."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.config import EngineConfig
from relquery.engine.calibration import BatchShape, calibrate, irregular, rapid, regular
from relquery.engine.cost import Fit, LinearCost, Step, fit, r_squared
from relquery.engine.executor import SimulatedExecutor, VirtualClock
from relquery.engine.machines import SERVED, find_machine, with_cache, write_machine
from relquery.errors import ConfigError
from tests.engine.harness import for_each

WORK = [(n, 0, 0) for n in (10, 100, 1000)] + [(500, 0, 4000)]
WORK += [(0, n, 100 * n) for n in (1, 8, 64)] + [(0, 8, 5000)]


def measured(cost: LinearCost, work: list[tuple[int, int, int]], noise: float = 0) -> list[Step]:
    rng = np.random.default_rng(0)
    return [Step(*each, cost.seconds(*each) * (1 + noise * rng.normal())) for each in work]


@given(*[st.floats(1e-6, 1e-1)] * 5)
def test_exact_steps_give_the_parameters_back(
    a: float, b: float, c: float, d: float, e: float
) -> None:
    cost = LinearCost(a, b, c, d, e)
    found = fit(measured(cost, WORK))
    assert found.r2 == pytest.approx(1)
    for step in measured(cost, [(300, 0, 50), (0, 30, 900), (40, 5, 60)]):
        work = step.prefill_tokens, step.decode_requests, step.context_tokens
        assert found.cost.seconds(*work) == pytest.approx(step.seconds, rel=1e-3)


@given(st.lists(st.floats(1e-6, 1.0), min_size=len(WORK), max_size=len(WORK)))
def test_no_parameter_is_negative_whatever_was_measured(seconds: list[float]) -> None:
    steps = [Step(*work, each) for work, each in zip(WORK, seconds, strict=True)]
    cost = fit(steps).cost
    parts = cost.prefill_slope, cost.prefill_intercept, cost.decode_slope, cost.decode_intercept
    assert min(*parts, cost.context_slope) >= 0


def test_noise_lowers_what_is_explained_also_on_held_out_steps() -> None:
    cost = LinearCost(1e-4, 0.02, 1e-3, 0.01)
    found = fit(measured(cost, WORK * 5, 0.05), measured(cost, WORK, 0.2))
    assert 0.95 < found.r2 < 1
    assert found.held_out is not None
    assert found.held_out < found.r2
    assert r_squared(LinearCost(0, 0, 0, 0), measured(cost, WORK)) < 0


def test_one_kind_of_step_alone_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="three that decode"):
        fit([Step(10 * n, 0, 0, 0.1) for n in range(1, 9)])


def test_a_step_costs_its_fixed_part_and_each_kind_of_work() -> None:
    cost = LinearCost(0.1, 1.0, 10.0, 2.0, 0.001)
    assert cost.seconds(0, 0, 0) == 0.0
    assert cost.seconds(20, 0, 1000) == 1.0 + 2.0 + 1.0
    assert cost.seconds(0, 3, 1000) == 2.0 + 30.0 + 1.0
    assert cost.seconds(20, 3, 0) == 2.0 + 2.0 + 30.0


def test_a_decode_costs_more_than_a_prefill_token_by_default() -> None:
    cost = LinearCost()
    assert cost.seconds(0, 1, 0) > cost.seconds(1, 0, 0) > cost.seconds(0, 0, 0)


# ---- files

FIT = Fit(LinearCost(1e-3, 0.1, 2e-3, 0.2, 1e-6), 40, 0.99, 0.97)


def test_a_written_cost_model_is_read_back(tmp_path: Path) -> None:
    limits = EngineConfig(max_num_seqs=9, cache_tokens=4_096)
    write_machine(tmp_path / "laptop.json", "demo", FIT, limits)
    found = find_machine(str(tmp_path / "laptop.json"))
    assert found.cost == FIT.cost
    assert (found.limits.max_num_seqs, found.limits.cache_tokens) == (9, 4_096)
    assert with_cache(found, 64).limits.cache_tokens == 64
    assert with_cache(found, None) is found


def test_costs_that_are_negative_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "laptop.json"
    write_machine(path, "demo", FIT, EngineConfig())
    content = json.loads(path.read_text())
    content["cost"]["decode_slope"] = -1
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="negative"):
        find_machine(str(path))


def test_known_machines_have_names() -> None:
    assert find_machine("a100-opt13b") is SERVED["a100-opt13b"]
    with pytest.raises(ConfigError, match="Did you mean 'a100-opt13b'"):
        find_machine("a100-opt13")


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ["", "{}", "[]", '{"cost": {}, "limits": {}}', "7"]:
        path.write_text(text)
        with pytest.raises(ConfigError, match="is not a cost model"):
            find_machine(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        find_machine(str(tmp_path / "absent.json"))


# ---- calibration finds the costs of an executor whose costs are known

ROOMY = EngineConfig(max_num_batched_tokens=600, max_num_seqs=20, cache_tokens=20_000)


def test_it_finds_the_costs_of_a_simulated_executor_and_predicts_other_batches() -> None:
    clock, cost = VirtualClock(), LinearCost(1e-4, 0.03, 2e-3, 0.01, 1e-6)
    seen: list[tuple[str, int, int]] = []
    found = calibrate(
        SimulatedExecutor(clock, cost),
        ROOMY,
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
    limits = replace(ROOMY, cache_tokens=cache_tokens)
    executor = SimulatedExecutor(clock, cost)
    found = calibrate(executor, limits, clock, vocabulary=100, quick=True)
    assert found.steps == len(list(rapid(limits)))
    assert found.held_out is None
    for name in LinearCost.__slots__:
        assert getattr(found.cost, name) == pytest.approx(getattr(cost, name)), name


def test_in_haste_a_slow_machine_is_not_asked_for_large_batches() -> None:
    clock, cost = VirtualClock(), LinearCost(0.01, 0.4, 0.02, 0.6, 1e-4)
    executor = SimulatedExecutor(clock, cost)
    found = calibrate(executor, ROOMY, clock, vocabulary=100, quick=True)
    assert found.steps == 8
    assert found.cost.seconds(600, 0) == pytest.approx(cost.seconds(600, 0))
    assert clock.now() < 12


def test_no_request_is_longer_than_the_context() -> None:
    shape = BatchShape(((200, 100), (50, 500)), (10, 900))
    assert shape.within(120) == BatchShape(((120, 0), (50, 70)), (10, 119))
    clock = VirtualClock()
    executor = SimulatedExecutor(clock, LinearCost(1e-5, 1e-3, 1e-4, 1e-3, 1e-7))
    found = calibrate(executor, ROOMY, clock, vocabulary=100, longest=120, quick=True)
    assert asdict(found.cost) == pytest.approx(asdict(executor.cost))


def test_batches_that_the_cache_cannot_hold_are_left_out() -> None:
    clock = VirtualClock()
    small = EngineConfig(max_num_batched_tokens=600, max_num_seqs=20, cache_tokens=1_000)
    executor = SimulatedExecutor(clock, LinearCost())
    found = calibrate(executor, small, clock, vocabulary=100)
    assert 6 < found.steps < len(list(regular(small)))


def test_what_a_short_context_leaves_of_a_batch_may_fit_the_cache() -> None:
    clock, cost = VirtualClock(), LinearCost(1e-4, 1e-3, 1e-4, 1e-3, 1e-7)
    small = replace(ROOMY, cache_tokens=160)
    found = calibrate(SimulatedExecutor(clock, cost), small, clock, vocabulary=100, longest=80)
    assert asdict(found.cost) == pytest.approx(asdict(cost))
    assert found.steps > sum(shape.slots <= 160 for shape in regular(small))


@for_each("longest", [None, 100])
def test_the_least_cache_is_named_and_is_enough(longest: int | None) -> None:
    clock = VirtualClock()
    executor = SimulatedExecutor(clock, LinearCost(1e-4, 1e-3, 1e-4, 1e-3, 1e-7))

    def measured(cache_tokens: int) -> int:
        limits = replace(ROOMY, cache_tokens=cache_tokens)
        return calibrate(executor, limits, clock, vocabulary=100, longest=longest).steps

    with pytest.raises(ConfigError, match=r"holds 48 tokens.*Set cache_tokens") as caught:
        measured(48)
    assert clock.now() == 0
    least = int(re.findall(r"\d+", str(caught.value))[1])
    assert measured(least) >= 6
    with pytest.raises(ConfigError, match=f"at least {least}"):
        measured(least - 16)


def test_shapes_stay_within_the_limits() -> None:
    shapes = [*regular(ROOMY), *irregular(ROOMY, np.random.default_rng(0), 60)]
    for shape in [*shapes, *rapid(ROOMY)]:
        assert sum(tokens for tokens, _ in shape.prompts) <= ROOMY.max_num_batched_tokens
        assert len(shape.decodes) <= ROOMY.max_num_seqs
