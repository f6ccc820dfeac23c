"""Growth is measured on a synthetic table and held against n log n."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.reorder.growth import exponent, last_step, peak_bytes, synthetic


def test_the_synthetic_table_repeats_and_is_skewed_and_correlated() -> None:
    table = synthetic(3_000, seed=1)
    assert table.equals(synthetic(3_000, seed=1))
    assert not table.equals(synthetic(3_000, seed=2))
    assert table.shape == (3_000, 10)
    distinct = {name: len(table[name].unique()) for name in table.column_names}
    assert distinct["note"] == 3_000
    cities = table.group_by("city").aggregate([("state", "count_distinct"), ("note", "count")])
    assert set(cities["state_count_distinct"].to_pylist()) == {1}
    assert max(cities["note_count"].to_pylist()) > 20 * 3_000 / distinct["city"]


@pytest.mark.parametrize("power", [0.9, 1.0, 1.3])
def test_the_exponent_is_the_power_of_n_log_n(power: float) -> None:
    sizes = [1_000, 10_000, 100_000]
    seconds = [1e-6 * (size * math.log(size)) ** power for size in sizes]
    assert exponent(sizes, seconds) == pytest.approx(power)


def test_the_last_step_is_1_for_n_log_n_and_above_for_what_grows_faster() -> None:
    sizes = [10_000, 1_000_000, 10_000_000]
    assert last_step(sizes, [size * math.log(size) for size in sizes]) == pytest.approx(1)
    quadratic = [5 + 1e-12 * size**2 for size in sizes]  # below n log n but for the last step
    assert exponent(sizes[:2], quadratic[:2]) < 0.1
    assert last_step(sizes, quadratic) > 1.3


def test_a_fresh_process_tells_the_most_memory_that_it_held() -> None:
    held = np.ones(2**27)  # what the process that starts it holds does not count
    assert 2**26 < peak_bytes(50, 0) < 2**29 < held.nbytes
