"""A relQuery has one latency in three parts, and ends when its last request does."""

from __future__ import annotations

import pytest

from tests.engine.harness import Harness


def test_its_latency_is_waiting_core_and_tail() -> None:
    harness = Harness(max_num_batched_tokens=10, max_num_seqs=2)
    harness.submit(range(30), 1, group=7)
    relquery = harness.submit_rows(1, 2, 10, 3)
    ends = []
    while harness.engine.waiting or harness.engine.running:
        harness.step()
        ends.append(harness.executor.clock.now())
    # Three steps for the first prompt; then a step each for both prompts; two tokens more.
    latency = relquery.latency
    assert latency is not None
    assert relquery.started == ends[2]
    assert relquery.ended == ends[-1]
    assert latency.waiting == ends[2]
    assert latency.total == pytest.approx(ends[-1])
    assert latency.core > latency.tail > 0
    assert (relquery.size, relquery.answered, relquery.answered_tokens) == (2, 2, 6)
    assert relquery.open == 0
    assert not harness.engine.relqueries


def test_one_that_is_cancelled_before_it_is_begun_has_no_latency_and_leaves_nothing() -> None:
    harness = Harness(max_num_seqs=1)
    harness.submit_rows(0, 1, 10, 3)
    relquery = harness.submit_rows(1, 3, 10, 3)
    harness.step()
    for request in list(relquery.waiting):
        harness.engine.cancel(request)
    assert relquery.latency is None
    assert relquery.ended is not None
    assert set(harness.engine.relqueries) == {0}
    harness.run()
    assert harness.engine.pool.held == 0


def test_one_that_fails_in_part_ends_with_the_rest() -> None:
    harness = Harness()
    relquery = harness.submit_rows(0, 3, 10, 3)
    harness.step()
    harness.engine.cancel(next(iter(relquery.running)))
    harness.run()
    assert (relquery.answered, relquery.open) == (2, 0)
    assert relquery.latency is not None


def test_requests_that_come_later_belong_to_the_one_that_is_open() -> None:
    harness = Harness()
    first = harness.submit_rows(0, 1, 10, 3)
    harness.step()
    assert harness.submit_rows(0, 2, 10, 3) is first
    assert first.size == 3
    harness.run()
    assert harness.submit_rows(0, 1, 10, 3) is not first
