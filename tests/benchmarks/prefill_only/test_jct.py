"""The time of a prompt by its length and what of it is cached: its form, its fit, its measuring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.prefill_only.job_time import (
    JobTime,
    Timed,
    fit_job_time,
    grid,
    measure_jct,
    pearson,
)
from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Chunk, Drawn, SimulatedExecutor, VirtualClock
from relquery.errors import ConfigError
from tests.engine.harness import for_each


def timed(job_time: JobTime) -> list[Timed]:
    return [Timed(*pair, job_time(*pair)) for pair in grid(12_000)]


@given(cached=st.integers(0, 50), rest=st.integers(0, 50))
def test_the_attention_term_counts_what_each_token_attends_to(cached: int, rest: int) -> None:
    job_time = JobTime(0.0, 0.0, 0.0, attention=1.0)
    # Each token attends to those before it and, by half, to itself.
    attended = sum(at + 0.5 for at in range(cached, cached + rest))
    assert job_time(cached + rest, cached) == pytest.approx(attended)


@given(length=st.integers(1, 10**6), share=st.floats(0, 1))
def test_it_is_what_the_length_costs_less_what_the_cached_tokens_save(
    length: int, share: float
) -> None:
    job_time, cached = JobTime(0.02, 1e-4, 8e-5, 1e-9), int(share * length)
    assert job_time(length, cached) == job_time.alone(length) - job_time.saved(cached)
    assert job_time.saved(0) == 0


@for_each("attention", [0.0, 3e-9])
def test_a_fit_finds_the_times_it_was_given(attention: float) -> None:
    truth = JobTime(0.05, 2e-4, 1.5e-4, attention)
    found = fit_job_time(timed(truth))
    for length, cached in ((5_500, 0), (9_000, 8_500)):
        assert found.job_time(length, cached) == pytest.approx(truth(length, cached))
    assert found.fitted == pytest.approx(1)
    assert 0.9 < found.proxy < 1


def test_without_the_attention_term_a_fit_is_linear_in_length_and_cached() -> None:
    found = fit_job_time(timed(JobTime(0.05, 2e-4, 1.5e-4, 3e-8)), attention=False)
    assert found.job_time.attention == 0
    assert found.proxy < found.fitted < 1


def test_more_cached_tokens_never_take_longer_whatever_was_measured() -> None:
    slower = [Timed(length, cached, length + 2.0 * cached) for length, cached in grid(12_000)]
    found = fit_job_time(slower).job_time
    assert min(found.per_token, found.per_cached, found.attention) >= 0


def test_a_fit_needs_four_measurements() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        fit_job_time([Timed(1, 0, 1.0)] * 3)


def test_pearson_is_numpys_and_0_where_nothing_varies() -> None:
    one, other = np.array([1.0, 2.0, 4.0, 3.0]), np.array([1.0, 3.0, 2.0, 5.0])
    assert pearson(one, other) == pytest.approx(np.corrcoef(one, other)[0, 1])
    assert pearson(one, -one) == pytest.approx(-1)
    assert pearson(one, np.ones(4)) == 0


# ---- measuring


@for_each("longest, grain, pairs", [(600, 100, 21), (8_000, 1_000, 36), (64_000, 4_000, 136)])
def test_the_grid_has_a_grain_of_1000_tokens_or_as_fits(
    longest: int, grain: int, pairs: int
) -> None:
    points = list(grid(longest))
    assert len(points) == pairs
    assert all(cached < length <= longest for length, cached in points)
    assert {length % grain for length, _ in points} == {0}
    assert max(points) == (longest, longest - grain)


class Checking(SimulatedExecutor):
    """Checks that chunks are a prompt's, step by step."""

    def __init__(self, clock: VirtualClock, cost: LinearCost) -> None:
        super().__init__(clock, cost)
        self.chunks: list[Chunk] = []

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        (chunk,) = chunks
        slots = [*(slot for segment in chunk.context for slot in segment.slots), *chunk.writes]
        assert slots == list(range(chunk.position + len(chunk.tokens)))
        self.chunks.append(chunk)
        return super().execute(chunks)


def test_measuring_an_executor_finds_its_costs() -> None:
    clock, cost = VirtualClock(), LinearCost(1e-4, 0.03, context_slope=2e-5)
    executor = Checking(clock, cost)
    limits = EngineConfig(cache_tokens=6_000, max_num_batched_tokens=6_000)
    seen: list[tuple[str, int, int]] = []
    found = measure_jct(
        executor, limits, clock, vocabulary=50, repeats=1, progress=lambda *at: seen.append(at)
    )
    assert seen == [("prompts", number, 42) for number in range(1, 43)]
    assert len(found.timed) == 21
    assert found.fitted == pytest.approx(1)
    assert found.job_time(4_500, 1_500) == pytest.approx(cost.seconds(3_000, 0, 1_500))
    assert all(chunk.draw is not None for chunk in executor.chunks)
    assert max(chunk.tokens.max() for chunk in executor.chunks) < 50


def test_a_prompt_beyond_a_step_takes_several() -> None:
    clock = VirtualClock()
    executor = Checking(clock, LinearCost(1e-4, 0.03))
    limits = EngineConfig(cache_tokens=1_200, max_num_batched_tokens=150)
    found = measure_jct(executor, limits, clock, vocabulary=50, repeats=1)
    assert max(len(chunk.tokens) for chunk in executor.chunks) == 150
    by_pair = {(each.length, each.cached): each.seconds for each in found.timed}
    assert by_pair[1_200, 0] == pytest.approx(1_200 * 1e-4 + 8 * 0.03)
    again = measure_jct(executor, limits, clock, vocabulary=50, step_tokens=1_200, longest=400)
    assert max(each.length for each in again.timed) == 396
    assert again.job_time.fixed == pytest.approx(0.03)


def test_a_cache_too_small_to_measure_with_is_refused() -> None:
    clock = VirtualClock()
    limits = EngineConfig(cache_tokens=2, block_size=1)
    with pytest.raises(ConfigError, match="Set cache_tokens"):
        measure_jct(SimulatedExecutor(clock), limits, clock, vocabulary=5)
