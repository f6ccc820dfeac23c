"""The same requests served by a network on this machine under each policy, at several loads.

Idle seconds are skipped: the clock is moved on to the next arrival, so that a low load takes no
longer than its work, and latencies are those of a service that had waited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import Literal, get_args

import numpy as np

from relquery.bench.harness import Say
from relquery.bench.prefill_only.workloads import Workload
from relquery.config import PolicyName
from relquery.engine.clock import Clock, RealClock
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Executor
from relquery.engine.labels import LabelTrie
from relquery.engine.loop import Loop
from relquery.engine.policies.catalogue import Settings, make_policy
from relquery.engine.policies.priority import Fairness
from relquery.engine.request import Request
from relquery.serving.serve import serve
from relquery.serving.trace import TracedQuery

Mode = Literal["chunked", "fifo", "srjf-static", "srjf"]
"""chunked: an engine of today, which computes prompts in chunks, first in, first out."""
MODES: tuple[Mode, ...] = get_args(Mode)
SWEPT: tuple[Mode, ...] = ("chunked", "fifo", "srjf")
"""Those that serve all loads; the others serve the highest alone."""
_POLICIES: dict[Mode, PolicyName] = {
    "chunked": "sarathi",
    "fifo": "fifo",
    "srjf-static": "srjf-static",
    "srjf": "srjf",
}
LOADS = (0.25, 0.5, 1.0, 2.0, 4.0)
AGING = 0.1
"""λ as seconds of JCT per second of waiting: the 500 tokens per second of the paper's code, of
some 5,000 that its machines prefill in a second."""
LABELS = ((1,), (2,))
CLOSE = 1e-4
"""Log-probabilities that differ by no more are equal."""


class SkippingClock:
    """Real time, and the seconds that were skipped."""

    def __init__(self) -> None:
        self._real, self._skipped = RealClock(), 0.0

    def now(self) -> float:
        """Seconds since an arbitrary moment, as if the skipped ones had passed."""
        return self._real.now() + self._skipped

    def skip(self, seconds: float) -> None:
        """Let `seconds` pass at once."""
        self._skipped += max(0.0, seconds)


@dataclass(frozen=True, slots=True)
class Engine:
    """What serves. wait: lets seconds pass on the clock. cost: of its steps."""

    executor: Executor
    clock: Clock
    wait: Callable[[float], None]
    cost: LinearCost


@dataclass(frozen=True, slots=True)
class Served:
    """One service of a workload; all tuples by request, in order of arrival.

    seconds: from its begin to the last answer. cached: share of the prompts' tokens that the cache
    served.
    """

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
    """Services of the same arrivals under one policy; averages of them."""

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

    loads: what arrives, as multiples of that; by load and policy its services.
    """

    workload: Workload
    saturation: float
    loads: dict[float, dict[Mode, Rounds]]

    @property
    def highest(self) -> dict[Mode, Rounds]:
        """The services at the highest load."""
        return self.loads[max(self.loads)]

    @property
    def equal(self) -> float:
        """Share of the requests that every service answers alike: the same label, and the same
        log-probabilities up to CLOSE."""
        runs = [run for by in self.loads.values() for rounds in by.values() for run in rounds.runs]
        return float(np.all([_alike(runs[0], run) for run in runs], axis=0).mean())


def measure(
    workload: Workload, engine: Engine, loads: Sequence[float], rounds: int, say: Say
) -> Traffic:
    """Find the saturation, then serve each load; the highest under all policies, there and back.

    There and back, as a machine may be slower in one quarter of an hour than in the next. rounds:
    how often the highest is served under each policy.
    """
    saturation = run(workload, workload.at(inf), "srjf", engine).throughput
    say(f"{workload.name}: {workload.tokens:,} tokens, {saturation:.1f} requests/s at most")
    found = {}
    for load in sorted(loads):
        say(f"{workload.name} at {load:g} x")
        order = _there_and_back(rounds) if load == max(loads) else SWEPT
        found[load] = _serve(workload, engine, load * saturation, order, say)
    return Traffic(workload, saturation, found)


def _there_and_back(rounds: int) -> list[Mode]:
    turns = (MODES[::-1] if number % 2 else MODES for number in range(rounds))
    return [mode for turn in turns for mode in turn]


def _serve(
    workload: Workload, engine: Engine, rate: float, order: Sequence[Mode], say: Say
) -> dict[Mode, Rounds]:
    """Serve the same arrivals under one policy after another."""
    runs: dict[Mode, list[Served]] = {}
    for mode in order:
        served = run(workload, workload.at(rate), mode, engine)
        runs.setdefault(mode, []).append(served)
        say(
            f"{mode}: {served.mean:.2f} s on average, {served.seconds:.1f} s in all, "
            f"{served.cached:.0%} cached"
        )
    return {mode: Rounds(tuple(each)) for mode, each in runs.items()}


def run(
    workload: Workload,
    queries: Sequence[TracedQuery],
    mode: Mode,
    engine: Engine,
    aging: float = AGING,
) -> Served:
    """Serve all requests, given when each arrives, with an empty cache at the beginning."""
    policy = make_policy(_POLICIES[mode], Settings(engine.cost, Fairness(aging=aging)))
    loop = Loop(engine.executor, workload.limits(hybrid=mode != "chunked"), engine.clock, policy)
    labels = LabelTrie(LABELS)
    requests = [
        Request(number, prompt, 1, choices=LABELS, group=number, scored=True, labels=labels)
        for number, prompt in enumerate(workload.prompts)
    ]
    begin = engine.clock.now()
    outcomes = serve(queries, loop, engine.clock, engine.wait, lambda _, at: [requests[at]])
    refused = sum(outcome.failed for outcome in outcomes)
    assert not refused, "a prompt exceeds what the engine takes"
    return Served(
        tuple((request.finished_at or 0.0) - request.arrival for request in requests),
        engine.clock.now() - begin,
        sum(request.cached or 0 for request in requests) / workload.tokens,
        tuple(tuple(request.output) for request in requests),
        tuple(request.scores or () for request in requests),
    )


def _alike(one: Served, other: Served) -> list[bool]:
    """By request, whether both answer it alike."""
    apart = np.abs(np.array(one.scores) - np.array(other.scores)).max(axis=1)
    same = (a == b for a, b in zip(one.outputs, other.outputs, strict=True))
    return [a and bool(far <= CLOSE) for a, far in zip(same, apart, strict=True)]
