"""The cost of scheduling a step while very many requests wait."""

from __future__ import annotations

import gc
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from benchmarks.baselines import Scheduler, make_policy
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.relserve import checks
from benchmarks.relserve.sizes import choose
from benchmarks.relserve.traces import present
from benchmarks.templates import template
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


WORDS = template("relserve")


@dataclass(slots=True)
class Scheduling(Part):
    """The part. relqueries: number waiting."""

    name = "scheduling"
    title = "A long queue"
    relqueries: int = 0
    crowded: list[Crowded] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        sizes = choose(settings.quick)
        self.relqueries = sizes.relqueries
        self.crowded = [measure(name, sizes.relqueries, sizes.steps) for name in POLICIES]
        yield from figures(self.crowded)
        if checks.TABLE in {source.name for source in present(settings.data)}:
            simulated, took, requests = checks.hour(settings.data, settings.seed, sizes.hour)
            note = f"{simulated:,.0f} s of service, OPT-13B near saturation, under shortest"
            yield Figure("hour_simulated_seconds", took * 3_600 / simulated, 60, False, note)
            note = f"for 100,000 requests; {requests:,} of them in {took:.1f} s"
            yield Figure("many_simulated_seconds", took * 1e5 / requests, 15, False, note)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("crowded", requests=self.relqueries * EACH, relqueries=self.relqueries)
        yield from table(
            ("policy", "mean", "at most", "arrivals, at most"),
            [
                (each.policy, f"{each.mean:.2f}", f"{each.worst:.1f}", f"{each.arrivals:.1f}")
                for each in self.crowded
            ],
        )


def figures(rows: Sequence[Crowded]) -> Iterator[Figure]:
    """Of the slowest policy."""
    slowest = max(rows, key=lambda row: row.mean)
    note = f"milliseconds, mean of {slowest.policy}; at most {slowest.worst:.1f}"
    yield Figure("crowded_step_ms", slowest.mean, 5.0, False, note)
    most = max(rows, key=lambda row: max(row.worst, row.arrivals))
    note = f"milliseconds, at most, of {most.policy}: a step, and what is told of arrivals"
    yield Figure("crowded_most_ms", max(most.worst, most.arrivals), 20.0, False, note)
