"""The same requests served by a network on this machine under each policy, at several loads.

All policies serve at once, taking turns, each with a clock of its own (see bench/turns.py). Idle
seconds are skipped: the clock is moved on to the next arrival, so that a low load takes no longer
than its work, and latencies are those of a service that had waited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import fmean
from typing import Literal, get_args

import numpy as np

from relquery.bench.harness import Say
from relquery.bench.prefill_only.workloads import Workload
from relquery.bench.turns import Turn, alternate
from relquery.config import PolicyName
from relquery.engine.cidra import Batch
from relquery.engine.clock import Clock
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Chunk, Drawn, Executor
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
AGING = 0.02
"""λ as seconds of JCT per second of waiting, from the sweep of aging.py. The paper's code has 500
tokens per second, which is 0.05 where a token takes 0.1 ms."""
LABELS = ((1,), (2,))
CLOSE = 1e-4
"""Log-probabilities that differ by no more are equal."""


class SkippingClock:
    """Time of a clock, and the seconds that were skipped."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._skipped = clock, 0.0

    def now(self) -> float:
        """Seconds since an arbitrary moment, as if the skipped ones had passed."""
        return self._clock.now() + self._skipped

    def skip(self, seconds: float) -> None:
        """Let `seconds` pass at once."""
        self._skipped += max(0.0, seconds)


class AlternatingExecutor:
    """An executor of which each step ends a turn."""

    def __init__(self, executor: Executor, turn: Turn) -> None:
        self._executor, self._turn = executor, turn

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        """See Executor."""
        drawn = self._executor.execute(chunks)
        self._turn.pass_on()
        return drawn

    def relocate(self, batches: Sequence[Batch], block_size: int) -> None:
        """See Executor."""
        self._executor.relocate(batches, block_size)


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


Open = Callable[[Mode, Turn], Engine]
"""The engine of a side, whose steps pass its turn on."""


def measure(
    workload: Workload, open_engine: Open, loads: Sequence[float], rounds: int, say: Say
) -> Traffic:
    """Find the saturation, then serve each load; the highest under all policies, `rounds` times."""

    def serve_all(modes: Sequence[Mode], rate: float) -> dict[Mode, Served]:
        queries = workload.at(rate)

        def serve_one(mode: Mode, turn: Turn) -> Served:
            return run(workload, queries, mode, open_engine(mode, turn))

        return alternate({mode: partial(serve_one, mode) for mode in modes})

    saturation = serve_all(["srjf"], inf)["srjf"].throughput
    say(f"{workload.name}: {workload.tokens:,} tokens, {saturation:.1f} requests/s at most")
    found = {}
    for load in sorted(loads):
        highest = load == max(loads)
        modes, count = (MODES, rounds) if highest else (SWEPT, 1)
        say(f"{workload.name} at {load:g} x")
        runs = [serve_all(modes, load * saturation) for _ in range(count)]
        found[load] = {mode: Rounds(tuple(each[mode] for each in runs)) for mode in modes}
        for mode, served in found[load].items():
            say(f"{mode}: {served.mean:.2f} s on average, {served.cached:.0%} cached")
    return Traffic(workload, saturation, found)


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
