"""The linear cost model, and fitting, which finds the parameters that made the steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.cost.fit import Step, fit, r_squared
from relquery.engine.cost.linear import LinearCost

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
