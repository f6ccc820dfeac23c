"""The simulated executor: a virtual clock, a cost model and a function that answers."""

from __future__ import annotations

import numpy as np
import pytest

from relquery.config import EngineConfig
from relquery.engine.clock import VirtualClock
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import Chunk, Segment, SimulatedExecutor
from relquery.engine.loop import Loop
from relquery.engine.request.request import Draw, Request
from relquery.engine.request.rules import Rules
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


def simulate() -> list[tuple[int, tuple[int, ...], float | None]]:
    clock = VirtualClock()
    executor = SimulatedExecutor(clock, COST, lambda request, at: (request * 7 + at) % 11)
    config = EngineConfig(max_num_batched_tokens=16, max_num_seqs=4, block_size=4, cache_tokens=96)
    engine = Loop(executor, config, clock)
    for number in range(12):
        prompt = np.concatenate((numbered(number % 5 * 4), numbered(5, start=number)))
        engine.submit(Request(number, prompt, 6, rules=Rules(frozenset({3}))))
    return [(r.id, tuple(r.output), r.finished_at) for r in engine.run()]


def test_a_simulated_run_repeats_exactly() -> None:
    runs = simulate()
    assert sorted(number for number, _, _ in runs) == list(range(12))
    assert runs == simulate()


def test_arrival_and_end_are_read_from_the_clock_that_the_engine_was_given() -> None:
    harness = Harness()
    early = harness.submit(range(4), max_tokens=1)
    harness.run()
    late = harness.submit(range(4), max_tokens=1)
    harness.run()
    assert early.arrival == 0
    assert early.finished_at == late.arrival > 0
    assert late.finished_at == harness.executor.clock.now() > late.arrival


def test_a_simulated_request_with_choices_ends_on_a_choice() -> None:
    clock = VirtualClock()
    engine = Loop(SimulatedExecutor(clock), EngineConfig(), clock)
    prompt = np.arange(5, dtype=np.int32)
    engine.submit(Request(0, prompt, max_tokens=9, rules=Rules(labels=((7, 8), (7, 9, 9), (0, 4)))))
    engine.submit(Request(1, prompt, max_tokens=9, rules=Rules(labels=((7, 8), (7, 9, 9)))))
    assert {r.id: r.output for r in engine.run()} == {0: [0, 4], 1: [7, 8]}
