"""The simulated executor: a virtual clock, a cost model and a function that answers."""

from __future__ import annotations

import numpy as np
import pytest

from relquery.engine.clock import VirtualClock
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import Chunk, Segment, SimulatedExecutor
from relquery.engine.request.request import Draw
from tests.engine.harness import Harness, numbered

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
