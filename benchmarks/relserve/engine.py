"""The same trace served by a network on this machine under each policy, and what scheduling costs.

Answers have the lengths given in the trace, because a network with random weights does not end them
itself. Everything else is as for users: tokens, cache, attention, sampling. All policies run at
once, taking turns, each with its own clock (see benchmarks/turns.py); idle seconds are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.relserve.simulated import OURS, load_trace
from benchmarks.relserve.sizes import FULL, Sizes, choose
from benchmarks.relserve.traces import SOURCES, present, read_rows
from benchmarks.stock import executor_of
from benchmarks.templates import template
from benchmarks.turns import AlternatingExecutor, SkippingClock, Turn, alternate
from relquery.arrays import TokenIds
from relquery.config import EngineConfig, PolicyName
from relquery.engine.calibration import calibrate
from relquery.engine.cost import Fit, LinearCost
from relquery.engine.executor import RealClock
from relquery.engine.loop import Loop
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Memo, Plan, Policy, State
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy
from relquery.traces.simulate import Outcome, requests_of, serve
from relquery.traces.trace import TracedQuery, at_rate

if TYPE_CHECKING:
    from relquery.model.served import ServedExecutor, ServedModel

TABLE = "ratebeer"
VOCABULARY = 8_192
LIMITS = EngineConfig(cache_tokens=15_700)
"""The cache of OPT-13B on an A100, as simulated; otherwise the engine's defaults."""
LOAD = 1.2
"""Load, as a share of the highest rate that fcfs can serve."""
POLICIES: tuple[PolicyName, ...] = ("fcfs", "static", "relserve", "shortest")


@dataclass(frozen=True, slots=True)
class Served:
    """A trace as one policy served it.

    seconds: from the first arrival to the last answer. scheduling: the part spent in the policy.
    outputs: by request.
    """

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
        """Tokens of prompts and answers."""
        return sum(outcome.prompt_tokens + outcome.output_tokens for outcome in self.outcomes)

    @property
    def throughput(self) -> float:
        """Tokens of prompts and answers per second of service."""
        return self.tokens / self.seconds

    @property
    def overhead(self) -> float:
        """Share of the service's time that was spent in the policy."""
        return self.scheduling / self.seconds


@dataclass(frozen=True, slots=True)
class OnEngine:
    """All policies. saturation: the most relQueries per second that fcfs can serve."""

    fit: Fit
    saturation: float
    runs: dict[PolicyName, Served]

    @property
    def equal(self) -> float:
        """Share of the answers that are equal under all policies, token for token."""
        first, *others = self.runs.values()
        return fmean(
            all(run.outputs[number] == output for run in others)
            for number, output in first.outputs.items()
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
    """A network, and a cache for every policy, on which the same traces are served."""

    def __init__(self, model: ServedModel, limits: EngineConfig) -> None:
        self._model, self._limits = model, limits
        self._executors: dict[PolicyName, ServedExecutor] = {}
        self._tokens: dict[str, TokenIds] = {}

    def calibrate(self, seed: int) -> Fit:
        """Measure the cost of its steps, which also warms it up."""
        vocabulary = len(self._model.tokenizer)
        executor = self._executor(POLICIES[0])
        return calibrate(executor, self._limits, RealClock(), vocabulary=vocabulary, seed=seed)

    def serve(
        self, queries: Sequence[TracedQuery], names: Sequence[PolicyName], cost: LinearCost
    ) -> dict[PolicyName, Served]:
        """Serve a trace under all policies in turn, starting with an empty cache."""
        for query in queries:  # tokenised in advance, because it costs every policy the same
            for prompt in query.prompts:
                self._encode(prompt)
        return alternate({name: partial(self._serve, queries, name, cost) for name in names})

    def _serve(
        self, queries: Sequence[TracedQuery], name: PolicyName, cost: LinearCost, turn: Turn
    ) -> Served:
        policy, clock = _Timed(make_policy(name, PolicySettings(cost))), SkippingClock(turn)
        executor = AlternatingExecutor(self._executor(name), turn)
        loop = Loop(executor, self._limits, clock, policy)
        requests: list[Request] = []
        numbers = count()

        def prepare(query: TracedQuery, group: int) -> list[Request]:
            made = requests_of(query, group, numbers, self._encode)
            requests.extend(made)
            return made

        begin = clock.now()
        outcomes = tuple(serve(queries, loop, clock, clock.skip, prepare))
        seconds = clock.now() - begin
        outputs = {request.id: tuple(request.output) for request in requests}
        return Served(outcomes, seconds, policy.seconds, policy.steps, outputs)

    def _executor(self, name: PolicyName) -> ServedExecutor:
        if name not in self._executors:
            slots = self._limits.cache_tokens // self._limits.block_size * self._limits.block_size
            self._executors[name] = executor_of(self._model, slots)
        return self._executors[name]

    def _encode(self, prompt: str) -> TokenIds:
        if prompt not in self._tokens:
            ids = self._model.tokenizer.encode([prompt])[0]
            self._tokens[prompt] = np.array(ids, np.int32)
        return self._tokens[prompt]


def measure(spec: str, relqueries: int, folder: Path, seed: int, say: Say) -> OnEngine:
    """Calibrate, find the saturation, then serve the same trace under all policies in turn.

    spec: the model, with random weights. relqueries: number in the trace.
    """
    from relquery.model.load import load
    from relquery.model.networks.random import train_tokenizer

    (source,) = (source for source in SOURCES if source.name == TABLE)
    texts = [str(row["review/text"]) for row in read_rows(source.file, folder)[:2_000]]
    service = Service(load(spec, tokenizer=train_tokenizer(texts, VOCABULARY)), LIMITS)
    fit = service.calibrate(seed)
    say(f"calibrated: R2 {fit.r2:.3f}, {fit.held_out or 0:.3f} on batches of other shapes")
    queries = load_trace(TABLE, folder, relqueries, seed, "shared")
    together = [replace(query, arrival=0.0) for query in queries]
    saturation = relqueries / service.serve(together, ["fcfs"], fit.cost)["fcfs"].seconds
    say(f"saturation: {saturation:.2f} relQueries/s")
    arriving = list(at_rate(queries, LOAD * saturation))
    runs = service.serve(arriving, POLICIES, fit.cost)
    for name, run in runs.items():
        say(f"{name}: {run.mean:.2f} s on average, {run.seconds:.0f} s in all")
    return OnEngine(fit, saturation, runs)


WORDS = template("relserve")


@dataclass(slots=True)
class Engine(Part):
    """The part."""

    name = "engine"
    title = "On this machine"
    sizes: Sizes = FULL
    found: OnEngine | None = None

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads

        self.sizes = sizes = choose(settings.quick)
        if TABLE not in {source.name for source in present(settings.data)}:
            say(f"{settings.data} does not contain the table {TABLE}")
            return
        set_threads(settings.threads)
        self.found = measure(sizes.model, sizes.engine, settings.data, settings.seed, say)
        yield from figures(self.found)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        on_engine = self.found
        if on_engine is None:
            return
        yield WORDS.block(
            "engine",
            model=self.sizes.model,
            count=self.sizes.engine,
            load=LOAD,
            rate=LOAD * on_engine.saturation,
            cache=LIMITS.cache_tokens,
        )
        yield from table(
            ("policy", "mean", "fcfs / it", "seconds in all", "tokens/s", "scheduling", "steps"),
            [
                (
                    name,
                    f"{run.mean:.2f}",
                    f"{on_engine.runs['fcfs'].mean / run.mean:.2f}",
                    f"{run.seconds:.1f}",
                    f"{run.throughput:,.0f}",
                    f"{run.overhead:.2%}",
                    f"{run.steps:,}",
                )
                for name, run in on_engine.runs.items()
            ],
        )


def figures(at: OnEngine) -> Iterator[Figure]:
    """The figures of the services."""
    ours = min(OURS, key=lambda name: at.runs[name].mean)
    best = at.runs[ours]
    goals: dict[PolicyName, float] = {"fcfs": 1.8, "static": 1.1}
    for name, goal in goals.items():
        note = f"{at.runs[name].mean:.2f} s / {best.mean:.2f} s ({ours})"
        yield Figure(f"engine_{name}_over_ours", at.runs[name].mean / best.mean, goal, note=note)
    throughput = best.throughput / at.runs["fcfs"].throughput
    note = f"{best.throughput:,.0f} / {at.runs['fcfs'].throughput:,.0f} tokens/s"
    yield Figure("engine_throughput", throughput, 0.97, note=note)
    slowest = max(POLICIES, key=lambda name: at.runs[name].overhead)
    note = f"share of the time, most of it under {slowest}"
    yield Figure("engine_scheduling", at.runs[slowest].overhead, 0.01, False, note)
    note = "under all policies, token for token"
    yield Figure("engine_equal_answers", at.equal, 1.0, note=note, any_size=True)
    note = f"{at.fit.r2:.3f} on the {at.fit.steps} batches fitted"
    yield Figure("calibration_r2", at.fit.held_out, 0.95, note=note)
