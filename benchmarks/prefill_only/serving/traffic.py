"""The same requests served by a network on this machine under each policy, at several loads.

All policies run at once, taking turns, each with its own clock (see benchmarks/turns.py). Idle
seconds are skipped: the clock is moved on to the next arrival, so a low load takes no longer
than its work, and latencies are the same as if the service had waited. Each round draws new
arrivals, the same for all policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from benchmarks.baselines import Scheduler, make_policy
from benchmarks.harness import Say
from benchmarks.prefill_only.serving.arrivals import Arrivals, Pattern
from benchmarks.prefill_only.workloads import Workload
from benchmarks.stock import executor_of
from benchmarks.turns import AlternatingExecutor, SkippingClock, Turn, alternate
from relquery.config import EngineConfig
from relquery.engine.calibration import calibrate
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Chunk, Clock, Executor, RealClock
from relquery.engine.loop import Loop
from relquery.engine.requests.labels import LabelTrie
from relquery.engine.requests.request import Draw, Request, Rules
from relquery.engine.scheduling.policies.catalogue import PolicySettings
from relquery.engine.scheduling.policies.priority import Fairness
from relquery.errors import RelqueryError
from relquery.traces.simulate import serve
from relquery.traces.trace import TracedQuery

if TYPE_CHECKING:
    from relquery.model.served import ServedExecutor, ServedModel

Mode = Literal["chunked", "fifo", "srjf-static", "srjf-calibrated", "srjf"]
"""chunked: a conventional engine, which computes prompts in chunks, first in, first out.
srjf-calibrated: the paper's policy, one prompt per step."""
MODES: tuple[Mode, ...] = get_args(Mode)
SWEPT: tuple[Mode, ...] = ("chunked", "fifo", "srjf")
"""Policies that serve all loads; the others only serve the highest."""
_POLICIES: dict[Mode, Scheduler] = {
    "chunked": "sarathi",
    "fifo": "fifo",
    "srjf-static": "srjf-static",
    "srjf-calibrated": "srjf-calibrated",
    "srjf": "srjf",
}
AGING = 0.02
"""λ as seconds of JCT per second of waiting, from the sweep of aging.py. The paper's code has 500
tokens per second, which is 0.05 where a token takes 0.1 ms."""
LABELS = ((1,), (2,))
CLOSE = 1e-4
"""Log-probabilities that differ by at most this count as equal."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine under test. wait: lets seconds pass on the clock. cost: of its steps."""

    executor: Executor
    clock: Clock
    wait: Callable[[float], None]
    cost: LinearCost


@dataclass(frozen=True, slots=True)
class Served:
    """One service of a workload; all tuples by request, in the order of the workload's prompts.

    seconds: from its start to the last answer. cached: share of the prompt tokens served from the
    cache.
    """

    arrivals: tuple[float, ...]
    latencies: tuple[float, ...]
    seconds: float
    cached: float
    outputs: tuple[tuple[int, ...], ...]
    scores: tuple[tuple[float, ...], ...]

    @property
    def mean(self) -> float:
        """Mean latency, seconds."""
        return fmean(self.latencies)

    @property
    def p99(self) -> float:
        """99th percentile of the latencies, seconds."""
        return float(np.percentile(self.latencies, 99))

    @property
    def throughput(self) -> float:
        """Requests per second of the whole service."""
        return len(self.latencies) / self.seconds


@dataclass(frozen=True, slots=True)
class Rounds:
    """Services under one policy, each with its own arrivals, and their averages."""

    runs: tuple[Served, ...]

    @property
    def mean(self) -> float:
        """Mean latency, seconds."""
        return fmean(run.mean for run in self.runs)

    @property
    def p99(self) -> float:
        """99th percentile of the latencies, seconds."""
        return fmean(run.p99 for run in self.runs)

    @property
    def throughput(self) -> float:
        """Requests per second."""
        return fmean(run.throughput for run in self.runs)

    @property
    def cached(self) -> float:
        """Share of the prompts' tokens that the cache served."""
        return fmean(run.cached for run in self.runs)


@dataclass(frozen=True, slots=True)
class Traffic:
    """A workload under all policies. saturation: requests per second of srjf if all come at once.

    pattern: how requests arrive. loads: services by load, as a multiple of saturation, and by
    policy.
    """

    workload: Workload
    pattern: Pattern
    saturation: float
    loads: dict[float, dict[Mode, Rounds]]

    @property
    def highest(self) -> dict[Mode, Rounds]:
        """The services at the highest load."""
        return self.loads[max(self.loads)]

    @property
    def equal(self) -> float:
        """Share of the requests that every service answers in the same way: with the same label,
        and the same log-probabilities up to CLOSE."""
        runs = [run for by in self.loads.values() for rounds in by.values() for run in rounds.runs]
        return float(np.all([_alike(runs[0], run) for run in runs], axis=0).mean())


Open = Callable[[Mode, Turn], Engine]
"""Opens the engine of a side; its steps pass the turn on."""


def saturate(workload: Workload, open_engine: Open) -> float:
    """Requests per second that srjf serves when all arrive at once."""
    at_once = (0.0,) * len(workload.prompts)
    return alternate(
        {"srjf": lambda turn: run(workload, at_once, "srjf", open_engine("srjf", turn))}
    )["srjf"].throughput


def measure(
    workload: Workload,
    arrivals: Arrivals,
    saturation: float,
    open_engine: Open,
    plan: Mapping[float, tuple[Sequence[Mode], int]],
    seed: int,
    say: Say,
) -> Traffic:
    """Serve each load of the plan, under its policies and for its number of rounds."""
    by_load = {}
    for load, (modes, rounds) in sorted(plan.items()):
        say(f"{workload.name}, {arrivals.pattern}, at {load:g} x")
        served = []
        for number in range(rounds):
            come = arrivals.draw(workload, load, saturation, seed + number)
            sides = {mode: partial(_serve, workload, come, mode, open_engine) for mode in modes}
            served.append(alternate(sides))
        by_load[load] = {mode: Rounds(tuple(each[mode] for each in served)) for mode in modes}
        for mode, runs in by_load[load].items():
            say(f"{mode}: {runs.mean:.2f} s on average, {runs.cached:.0%} cached")
    return Traffic(workload, arrivals.pattern, saturation, by_load)


def _serve(
    workload: Workload, arrivals: tuple[float, ...], mode: Mode, open_engine: Open, turn: Turn
) -> Served:
    return run(workload, arrivals, mode, open_engine(mode, turn))


def run(
    workload: Workload,
    arrivals: tuple[float, ...],
    mode: Mode,
    engine: Engine,
    aging: float = AGING,
) -> Served:
    """Serve all requests at the given arrival times, starting with an empty cache."""
    policy = make_policy(_POLICIES[mode], PolicySettings(engine.cost, Fairness(aging=aging)))
    loop = Loop(engine.executor, workload.limits(hybrid=mode != "chunked"), engine.clock, policy)
    labels, rules = LabelTrie(LABELS), Rules(labels=LABELS)
    requests = [
        Request(number, prompt, 1, rules=rules, group=number, scored=True, trie=labels)
        for number, prompt in enumerate(workload.prompts)
    ]
    order = sorted(range(len(requests)), key=arrivals.__getitem__)
    queries = [TracedQuery(arrivals[number], "score", "", "", ("",), 1, (1,)) for number in order]
    begin = engine.clock.now()
    outcomes = serve(
        queries, loop, engine.clock, engine.wait, lambda _, place: [requests[order[place]]]
    )
    refused = sum(outcome.failed for outcome in outcomes)
    assert not refused, "a prompt is too long for the engine"
    return Served(
        arrivals,
        tuple((request.finished_at or 0.0) - request.arrival for request in requests),
        engine.clock.now() - begin,
        sum(request.cached or 0 for request in requests) / workload.tokens,
        tuple(tuple(request.output) for request in requests),
        tuple(request.scores or () for request in requests),
    )


def _alike(one: Served, other: Served) -> list[bool]:
    """Per request, whether both answer it in the same way."""
    apart = np.abs(np.array(one.scores) - np.array(other.scores)).max(axis=1)
    same = (a == b for a, b in zip(one.outputs, other.outputs, strict=True))
    return [a and bool(far <= CLOSE) for a, far in zip(same, apart, strict=True)]


TRIES = 5


class Engines:
    """One engine per policy, each with an allocated cache of the workload's size."""

    def __init__(self, model: ServedModel, workload: Workload, cost: LinearCost) -> None:
        self._model, self._workload, self._cost = model, workload, cost
        self._executors: dict[Mode, ServedExecutor] = {}

    def open(self, mode: Mode, turn: Turn) -> Engine:
        """An engine whose steps pass the turn on."""
        if mode not in self._executors:
            executor = self._executors[mode] = executor_for(self._model, self._workload)
            executor.execute(
                [Chunk(0, np.zeros(1, np.int32), 0, (), np.zeros(1, np.int64), Draw())]
            )
            executor.reserve()
        clock = SkippingClock(turn)
        executor = self._executors[mode]
        return Engine(AlternatingExecutor(executor, turn), clock, clock.skip, self._cost)


def executor_for(model: ServedModel, workload: Workload) -> ServedExecutor:
    """An executor with a cache of the workload's size, which cuts steps as the workload says."""
    return executor_of(model, workload.cache_tokens, workload.chunk)


def calibrated(model: ServedModel, seed: int) -> LinearCost:
    """What steps cost, measured quickly; anew while noise hides what a token costs."""
    limits = EngineConfig(cache_tokens=32_768)
    executor = executor_of(model, limits.cache_tokens)
    vocabulary, clock = len(model.tokenizer), RealClock()
    for _ in range(TRIES):
        fit = calibrate(executor, limits, clock, vocabulary=vocabulary, quick=True, seed=seed)
        if fit.cost.prefill_slope > 0:
            return fit.cost
    raise RelqueryError(f"The machine is too busy: {TRIES} fits found that tokens cost nothing.")
