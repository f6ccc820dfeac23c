"""The linear cost model."""

from __future__ import annotations

from relquery.engine.cost.linear import LinearCost


def test_a_step_costs_its_fixed_part_and_each_kind_of_work() -> None:
    cost = LinearCost(0.1, 1.0, 10.0, 2.0, 0.001)
    assert cost.seconds(0, 0, 0) == 0.0
    assert cost.seconds(20, 0, 1000) == 1.0 + 2.0 + 1.0
    assert cost.seconds(0, 3, 1000) == 2.0 + 30.0 + 1.0
    assert cost.seconds(20, 3, 0) == 2.0 + 2.0 + 30.0


def test_a_decode_costs_more_than_a_prefill_token_by_default() -> None:
    cost = LinearCost()
    assert cost.seconds(0, 1, 0) > cost.seconds(1, 0, 0) > cost.seconds(0, 0, 0)
