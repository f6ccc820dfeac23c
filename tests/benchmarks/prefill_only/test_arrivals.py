"""Requests come user by user or shuffled; and what no order of service can be below."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.prefill_only.serving.arrivals import (
    Arrivals,
    first_in,
    service_seconds,
    shortest_remaining,
)
from benchmarks.prefill_only.workloads import Workload, post_recommendation


@pytest.fixture(scope="module")
def posts() -> Workload:
    return post_recommendation(0.01, users=30, each=10, vocabulary=257, seed=0)


def test_requests_of_a_user_come_one_after_another(posts: Workload) -> None:
    come = np.array(Arrivals("users", 2.0).draw(posts, 4.0, 10.0, 0)).reshape(30, 10)
    assert np.diff(come, axis=1) == pytest.approx(np.full((30, 9), 0.2))
    assert np.diff(come[:, 0]).min() > 0


@pytest.mark.parametrize("pattern", ["users", "shuffled"])
def test_requests_come_as_fast_as_the_load_says(posts: Workload, pattern: str) -> None:
    arrivals = Arrivals("users", 0.0) if pattern == "users" else Arrivals("shuffled")
    for load in (0.5, 4.0):
        draws = [max(arrivals.draw(posts, load, 10.0, seed)) for seed in range(20)]
        assert len(posts.prompts) / np.mean(draws) == pytest.approx(10.0 * load, rel=0.15)


def test_shuffled_requests_of_a_user_are_apart(posts: Workload) -> None:
    come = Arrivals("shuffled").draw(posts, 1.0, 10.0, 0)
    whose = [posts.users[number] for number in np.argsort(come)]
    together = sum(one == other for one, other in itertools.pairwise(whose))
    assert together < len(whose) / 10


def test_another_seed_is_another_draw_and_the_same_seed_the_same(posts: Workload) -> None:
    for arrivals in (Arrivals(), Arrivals("shuffled")):
        assert arrivals.draw(posts, 1.0, 10.0, 3) == arrivals.draw(posts, 1.0, 10.0, 3)
        assert arrivals.draw(posts, 1.0, 10.0, 3) != arrivals.draw(posts, 1.0, 10.0, 4)


JOBS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), min_size=1, max_size=5)


def serve(order: tuple[int, ...], jobs: list[tuple[int, int]]) -> list[float]:
    """Latencies where jobs are served in this order, each when it has come."""
    now, latencies = 0.0, [0.0] * len(jobs)
    for number in order:
        arrival, seconds = jobs[number]
        now = max(now, arrival) + seconds
        latencies[number] = now - arrival
    return latencies


@given(JOBS)
def test_no_order_of_service_is_below_the_shortest_remaining(jobs: list[tuple[int, int]]) -> None:
    arrivals, seconds = zip(*jobs, strict=True)
    bound = shortest_remaining(arrivals, seconds)
    means = [np.mean(serve(order, jobs)) for order in itertools.permutations(range(len(jobs)))]
    assert bound <= min(means) + 1e-9
    if len(set(arrivals)) == 1:
        assert bound == pytest.approx(min(means))


def test_a_short_request_interrupts_a_long_one() -> None:
    assert shortest_remaining([0.0, 1.0], [10.0, 1.0]) == pytest.approx((11.0 + 1.0) / 2)
    assert first_in([0.0, 1.0], [10.0, 1.0]) == pytest.approx((10.0 + 10.0) / 2)
    assert shortest_remaining([0.0, 9.5], [10.0, 1.0]) == pytest.approx((10.0 + 1.5) / 2)


@given(JOBS)
def test_the_seconds_of_each_request_are_read_from_a_service(jobs: list[tuple[int, int]]) -> None:
    arrivals, seconds = zip(*jobs, strict=True)
    order = tuple(sorted(range(len(jobs)), key=arrivals.__getitem__))
    latencies = serve(order, jobs)
    assert service_seconds(arrivals, latencies) == pytest.approx(seconds)
    assert first_in(arrivals, seconds) == pytest.approx(float(np.mean(latencies)))
