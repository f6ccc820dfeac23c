"""The cost of scheduling a step while very many requests wait."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from benchmarks.baselines import Scheduler, make_policy
from relquery.config import EngineConfig
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SimulatedExecutor, VirtualClock
from relquery.engine.loop import Loop
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.policies.catalogue import PolicySettings

EACH = 100
"""Requests of a relQuery."""
POLICIES: tuple[Scheduler, ...] = ("fcfs", "sarathi", "static", "relserve", "shortest")


@dataclass(frozen=True, slots=True)
class Crowded:
    """Milliseconds of scheduling per step: mean and maximum; and at most at once while requests
    arrive, the first step included."""

    policy: Scheduler
    mean: float
    worst: float
    arrivals: float


def measure(
    name: Scheduler,
    relqueries: int,
    steps: int = 300,
    *,
    each: int = EACH,
    prefill_only: bool = False,
) -> Crowded:
    """Time the policy over some steps with `relqueries` x `each` requests waiting.

    prefill_only: the step that ends a prompt ends its request. Python's garbage collector stands
    still: it takes its time wherever it happens to run.
    """
    gc.disable()
    try:
        return _measure(name, relqueries, steps, each, 1 if prefill_only else None)
    finally:
        gc.enable()


def _measure(name: Scheduler, relqueries: int, steps: int, each: int, most: int | None) -> Crowded:
    cost, clock = LinearCost(), VirtualClock()
    seconds: list[float] = []
    policy = make_policy(name, PolicySettings(cost))

    def timed(state: State, memo: Memo) -> tuple[Plan, Memo]:
        start = time.perf_counter()
        plan = policy(state, memo)
        seconds.append(time.perf_counter() - start)
        return plan

    config = EngineConfig(cache_tokens=32_768)
    loop = Loop(SimulatedExecutor(clock, cost), config, clock, timed)
    rng = np.random.default_rng(0)
    for group in range(relqueries):
        head = rng.integers(0, 30_000, 32).astype(np.int32)
        for number in range(each):
            tokens = np.concatenate((head, rng.integers(0, 30_000, 100).astype(np.int32)))
            limit = most or int(rng.choice((5, 10, 50, 100)))
            loop.submit(Request(group * each + number, tokens, limit, group=group))
    loop.step()
    arrivals = max(seconds)
    seconds.clear()
    for _ in range(steps - 1):
        loop.step()
    return Crowded(name, 1e3 * fmean(seconds), 1e3 * max(seconds), 1e3 * arrivals)
