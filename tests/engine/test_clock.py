"""Clocks: a simulation's, real time, and real time in which steps last as long as is said."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
import pytest

from relquery.engine import clock as clock_module
from relquery.engine.clock import PacedClock, RealClock, VirtualClock
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import Chunk, Segment, SimulatedExecutor
from relquery.engine.request.request import Draw
from tests.engine.harness import Harness, numbered


def test_the_virtual_clock_moves_only_when_told_to() -> None:
    clock = VirtualClock()
    assert clock.now() == clock.now() == 0
    clock.advance(1.5)
    clock.advance(0)
    assert clock.now() == 1.5


def test_the_virtual_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        VirtualClock().advance(-0.1)


def test_the_real_clock_never_decreases() -> None:
    clock = RealClock()
    times = [clock.now() for _ in range(100)]
    assert times == sorted(times)


# ---- paced


class FakeTime:
    """A `time` module whose time passes in sleeps and by hand. late: of a sleep's end."""

    def __init__(self) -> None:
        self.now, self.late = 100.0, 0.0
        self.slept: list[float] = []
        self.error: BaseException | None = None

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.error is not None:
            self.now += seconds / 4
            raise self.error
        self.now += seconds + self.late


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(clock_module, "time", fake)
    return fake


def began(fake: FakeTime, since: Callable[[], float] = lambda: -inf) -> PacedClock:
    """A clock whose first step, of a second, has ended."""
    clock = PacedClock(lambda: max(100.0, since()))
    clock.advance(1.0)
    assert fake.now == 101.0
    return clock


def test_time_between_two_steps_is_a_part_of_the_second(fake: FakeTime) -> None:
    clock = began(fake)
    for end in (102.0, 103.0, 104.0):
        fake.now += 0.25
        clock.advance(1.0)
        assert clock.now() == end
    assert fake.slept == [1.0, 0.75, 0.75, 0.75]


def test_a_sleep_that_lasts_too_long_shortens_the_next(fake: FakeTime) -> None:
    clock = began(fake)
    fake.late = 0.125
    for _ in range(10):
        clock.advance(1.0)
    assert fake.now == 111.125


def test_where_the_caller_is_slower_than_the_machine_nothing_is_waited_for_nor_owed(
    fake: FakeTime,
) -> None:
    clock = began(fake)
    for _ in range(5):
        fake.now += 3.0
        clock.advance(1.0)
    assert fake.slept == [1.0]
    clock.advance(1.0)
    assert fake.slept == [1.0, 1.0]


def test_idle_time_before_the_work_came_is_no_part_of_a_step(fake: FakeTime) -> None:
    came = 0.0
    clock = began(fake, lambda: came)
    came = 101.5
    fake.now = 101.75
    clock.advance(1.0)
    assert fake.now == 102.5


def test_work_that_is_to_come_in_the_future_begins_now(fake: FakeTime) -> None:
    clock = began(fake, lambda: 150.0 if fake.slept else 0.0)
    clock.advance(1.0)
    assert fake.now == 102.0


def test_a_step_that_is_interrupted_ends_there(fake: FakeTime) -> None:
    clock = began(fake)
    fake.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        clock.advance(1.0)
    fake.error = None
    assert fake.now == 101.25
    clock.advance(1.0)
    assert fake.now == 102.25


# ---- the simulated executor

COST = LinearCost(0.01, 1.0, 0.1, 0.5, 0.0001)


def chunk(tokens: int, context: int = 0, draw: Draw | None = None, request: int = 0) -> Chunk:
    segments = (Segment(np.arange(context)),) if context else ()
    writes = np.arange(context, context + tokens)
    return Chunk(request, numbered(tokens), context, segments, writes, draw)


def test_a_step_takes_as_long_as_the_cost_model_says() -> None:
    executor = SimulatedExecutor(VirtualClock(), COST)
    executor.execute([chunk(20), chunk(5, context=10), chunk(1, context=100)])
    assert executor.clock.now() == pytest.approx(1.0 + 25 * 0.01 + 0.1 + 110 * 0.0001)


def test_a_token_is_drawn_only_where_one_is_wanted() -> None:
    executor = SimulatedExecutor(VirtualClock(), COST, lambda request, at: request * 100 + at)
    chunks = [chunk(3, 4, Draw(), request=1), chunk(3, request=2), chunk(1, 8, Draw(), request=3)]
    assert executor.execute(chunks) == [107, None, 309]


def test_arrival_and_end_are_read_from_the_clock_that_the_engine_was_given() -> None:
    harness = Harness()
    early = harness.ask(range(4), max_tokens=1)
    late = harness.ask(range(4), max_tokens=1)
    assert early.arrival == 0
    assert early.finished_at == late.arrival > 0
    assert late.finished_at == harness.executor.clock.now() > late.arrival
