"""The same trace served by a network on this machine under each policy, and what scheduling costs.

Answers are as long as the trace says: a network with random weights does not end them itself. All
that users take is in between: tokens, cache, attention, drawing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from relquery.bench.relserve.simulated import load_trace
from relquery.bench.relserve.traces import SOURCES, read_rows
from relquery.config import EngineConfig, PolicyName
from relquery.engine.calibrate import calibrate
from relquery.engine.clock import RealClock
from relquery.engine.cost import LinearCost
from relquery.engine.fit import Fit
from relquery.engine.loop import Loop
from relquery.engine.pieces import Tokens
from relquery.engine.policies.catalogue import Settings, make_policy
from relquery.engine.request import Request
from relquery.engine.schedule import Memo, Plan, Policy, State
from relquery.serving.serve import Outcome, requests_of, serve
from relquery.serving.trace import TracedQuery
from relquery.serving.workload import at_rate

if TYPE_CHECKING:
    from relquery.model.executor import TorchExecutor
    from relquery.model.load import LoadedModel

TABLE = "ratebeer"
VOCABULARY = 8_192
LIMITS = EngineConfig(cache_tokens=15_700)
"""The cache of OPT-13B on an A100, as simulated; the engine's defaults else."""
LOAD = 1.2
"""Share of what fcfs serves at most."""
POLICIES: tuple[PolicyName, ...] = ("fcfs", "static", "relserve", "shortest")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Served:
    """A trace as one policy served it. scheduling: seconds in the policy. outputs: by request."""

    outcomes: tuple[Outcome, ...]
    seconds: float
    scheduling: float
    steps: int
    outputs: dict[int, tuple[int, ...]]

    @property
    def mean(self) -> float:
        """Mean latency of relQueries, in seconds."""
        return fmean(outcome.latency.total for outcome in self.outcomes)

    @property
    def tokens(self) -> int:
        """Of prompts and answers."""
        return sum(outcome.prompt_tokens + outcome.output_tokens for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class Rounds:
    """A policy's runs of the same trace; averages of them."""

    runs: tuple[Served, ...]

    @property
    def mean(self) -> float:
        """Mean latency of relQueries, in seconds."""
        return fmean(run.mean for run in self.runs)

    @property
    def seconds(self) -> float:
        """Of service, from the first arrival to the last answer."""
        return fmean(run.seconds for run in self.runs)

    @property
    def throughput(self) -> float:
        """Tokens of prompts and answers per second of service."""
        return sum(run.tokens for run in self.runs) / sum(run.seconds for run in self.runs)

    @property
    def scheduling(self) -> float:
        """Share of the service's time that was spent in the policy."""
        return sum(run.scheduling for run in self.runs) / sum(run.seconds for run in self.runs)

    @property
    def steps(self) -> float:
        """How many the service took."""
        return fmean(run.steps for run in self.runs)


@dataclass(frozen=True, slots=True)
class OnEngine:
    """All policies. saturation: relQueries per second that fcfs serves at most."""

    fit: Fit
    saturation: float
    runs: dict[PolicyName, Rounds]

    @property
    def equal(self) -> float:
        """Share of the answers that are, in every run, token for token those of the first."""
        every = [run for rounds in self.runs.values() for run in rounds.runs]
        expected = every[0].outputs
        return fmean(
            all(run.outputs[number] == output for run in every)
            for number, output in expected.items()
        )


class _Timed:
    """A policy, and the seconds spent in it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.seconds, self.steps = 0.0, 0

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        start = time.perf_counter()
        plan = self._policy(state, memo)
        self.seconds += time.perf_counter() - start
        self.steps += 1
        return plan


class Service:
    """A network and its cache, on which one trace after another is served."""

    def __init__(self, model: LoadedModel, limits: EngineConfig) -> None:
        from relquery.model.executor import TorchExecutor

        slots = limits.cache_tokens // limits.block_size * limits.block_size
        self._executor: TorchExecutor = TorchExecutor(model.network, slots)
        self._tokenizer, self._limits = model.tokenizer, limits
        self._tokens: dict[str, Tokens] = {}

    def calibrate(self, seed: int) -> Fit:
        """What its steps cost; warms it up, too."""
        vocabulary = len(self._tokenizer)
        return calibrate(
            self._executor, self._limits, RealClock(), vocabulary=vocabulary, seed=seed
        )

    def serve(self, queries: Sequence[TracedQuery], name: PolicyName, cost: LinearCost) -> Served:
        """Serve a trace at its true times, with an empty cache at the beginning."""
        for query in queries:  # tokens are made beforehand, as they cost every policy the same
            for prompt in query.prompts:
                self._encode(prompt)
        policy, clock = _Timed(make_policy(name, Settings(cost))), RealClock()
        loop = Loop(self._executor, self._limits, clock, policy)
        requests: list[Request] = []
        numbers = count()

        def prepare(query: TracedQuery, group: int) -> list[Request]:
            made = requests_of(query, group, numbers, self._encode)
            requests.extend(made)
            return made

        begin = clock.now()
        outcomes = tuple(serve(queries, loop, clock, time.sleep, prepare))
        seconds = clock.now() - begin
        outputs = {request.id: tuple(request.output) for request in requests}
        return Served(outcomes, seconds, policy.seconds, policy.steps, outputs)

    def _encode(self, prompt: str) -> Tokens:
        if prompt not in self._tokens:
            ids = self._tokenizer(prompt, add_special_tokens=False)["input_ids"]
            self._tokens[prompt] = np.array(ids, np.int32)
        return self._tokens[prompt]


def measure(spec: str, relqueries: int, folder: Path, seed: int, say: Say) -> OnEngine:
    """Calibrate, find the saturation, then serve the same trace under each policy, there and back.

    There and back, as a machine may be slower in one quarter of an hour than in the next. spec: the
    model, with random weights. relqueries: of the trace.
    """
    from relquery.model.load import load
    from relquery.model.random import train_tokenizer

    (source,) = (source for source in SOURCES if source.name == TABLE)
    texts = [str(row["review/text"]) for row in read_rows(source.file, folder)[:2_000]]
    service = Service(load(spec, tokenizer=train_tokenizer(texts, VOCABULARY)), LIMITS)
    fit = service.calibrate(seed)
    say(f"calibrated: R2 {fit.r2:.3f}, {fit.held_out or 0:.3f} on batches of other shapes")
    queries = load_trace(TABLE, folder, relqueries, seed)
    together = [replace(query, arrival=0.0) for query in queries]
    saturation = relqueries / service.serve(together, "fcfs", fit.cost).seconds
    arriving = list(at_rate(queries, LOAD * saturation))
    runs: dict[PolicyName, list[Served]] = {name: [] for name in POLICIES}
    for name in (*POLICIES, *reversed(POLICIES)):
        run = service.serve(arriving, name, fit.cost)
        runs[name].append(run)
        say(f"{name}: {run.mean:.2f} s on average, {run.seconds:.0f} s in all")
    return OnEngine(fit, saturation, {name: Rounds(tuple(each)) for name, each in runs.items()})
