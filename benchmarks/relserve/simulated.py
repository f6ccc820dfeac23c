"""Mean latencies under each policy: three models, the available tables, the paper's loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Literal

from benchmarks import baselines
from benchmarks.baselines import make_policy
from benchmarks.relserve.clairvoyant import clairvoyant
from benchmarks.relserve.static_chunked import static_chunked
from benchmarks.relserve.traces import SOURCES, trace
from relquery.config import PolicyName
from relquery.engine.machines import SERVED, Served
from relquery.engine.scheduling.policies.catalogue import PolicySettings
from relquery.traces.simulate import ServedTrace, approximate_tokens, simulate
from relquery.traces.trace import Sampling, TracedQuery, at_rate

LOADS = (0.7, 1.45)
"""Arrival rates of relQueries, as shares of the highest rate that fcfs can serve. In Table 6 of
paper 003 service takes 1.47 times as long as the arrivals at the highest rate, and just as long as
the arrivals at half of it."""
Scheduler = baselines.Scheduler | Literal["static-chunked"]
"""The engine's policies, and a baseline of this benchmark."""
POLICIES: tuple[Scheduler, ...] = (
    "fcfs",
    "sarathi",
    "static",
    "static-chunked",
    "relserve",
    "shortest",
)
MAIN: tuple[Scheduler, ...] = ("fcfs", "static", "relserve", "shortest")
"""The policies used in settings that do not run all of them."""
OURS: tuple[PolicyName, ...] = ("relserve", "shortest")
ABLATIONS: tuple[baselines.Scheduler, ...] = (
    "relserve-pp",
    "relserve-dp",
    "relserve-dpu",
    "relserve-aba",
)


@dataclass(frozen=True, slots=True)
class Job:
    """A model's costs, a table, and how much of it.

    seeds: one trace each, averaged. sampling: of the rows. policies: at every load. variants: only
    at the highest. bound: whether the clairvoyant serves the loads from 1 up.
    """

    model: str
    table: str
    count: int
    seeds: tuple[int, ...]
    loads: tuple[float, ...]
    folder: Path
    sampling: Sampling
    policies: tuple[Scheduler, ...] = POLICIES
    variants: tuple[baselines.Scheduler, ...] = ()
    bound: bool = False


@dataclass(frozen=True)
class Measured:
    """Mean latencies of one setting, in seconds: by load, then by policy, averaged over seeds.

    saturation: the most relQueries per second that fcfs can serve. prompt_tokens: mean per
    request. hit_rate: of fcfs at the highest load. bounds: the clairvoyant's means by load. parts:
    waiting, core and tail of each policy at the highest load.
    """

    model: str
    table: str
    count: int
    saturation: float
    prompt_tokens: float
    hit_rate: float
    means: dict[float, dict[Scheduler, float]]
    bounds: dict[float, float]
    parts: dict[Scheduler, tuple[float, float, float]]

    @property
    def name(self) -> str:
        """The model and the table."""
        return f"{self.model.removeprefix('a100-')} {self.table}"

    @cached_property
    def highest(self) -> dict[Scheduler, float]:
        """Means at the highest load."""
        return self.means[max(self.means)]

    def best(self, load: float) -> float:
        """The lowest mean of our policies."""
        return min(self.means[load][name] for name in OURS)

    def over(self, name: Scheduler, other: Scheduler | None = None) -> float:
        """A policy's mean divided by another's, or by the best of ours, at the highest load."""
        load = max(self.means)
        return self.means[load][name] / (self.means[load][other] if other else self.best(load))

    def waiting(self, name: Scheduler) -> float:
        """Share of a policy's latencies before the first request starts, at the highest load."""
        return self.parts[name][0] / sum(self.parts[name])

    @property
    def least(self) -> float:
        """The lowest ratio of fcfs or static priorities to the best of ours, at any load."""
        return min(
            min(means["fcfs"], means["static"]) / self.best(load)
            for load, means in self.means.items()
        )


def run_all(jobs: Sequence[Job], workers: int) -> Iterator[Measured]:
    """Each setting, in order, computed by several processes."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield from pool.map(run_job, jobs)


def run_job(job: Job) -> Measured:
    """All loads and policies of a setting."""
    served = SERVED[job.model]
    traces = [
        load_trace(job.table, job.folder, job.count, seed, job.sampling) for seed in job.seeds
    ]
    rates = [saturation(queries, served) for queries in traces]
    arriving = {
        load: [
            list(at_rate(queries, load * rate)) for queries, rate in zip(traces, rates, strict=True)
        ]
        for load in job.loads
    }
    runs = {load: _serve_all(job, load, arriving[load], served) for load in job.loads}
    highest = runs[max(job.loads)]
    bounded = [load for load in job.loads if job.bound and load >= 1]
    prompts = [len(approximate_tokens(p)) for queries in traces for q in queries for p in q.prompts]
    return Measured(
        job.model,
        job.table,
        job.count,
        fmean(rates),
        fmean(prompts),
        _hit_rate(highest["fcfs"]),
        means={
            load: {name: fmean(fmean(run.latencies()) for run in each) for name, each in by.items()}
            for load, by in runs.items()
        },
        bounds={load: clairvoyant(arriving[load], served) for load in bounded},
        parts={name: _parts(each) for name, each in highest.items()},
    )


def _serve_all(
    job: Job, load: float, arriving: Sequence[Sequence[TracedQuery]], served: Served
) -> dict[Scheduler, list[ServedTrace]]:
    names = job.policies + (job.variants if load == max(job.loads) else ())
    return {name: [serve(queries, name, served) for queries in arriving] for name in names}


def load_trace(
    table: str, folder: Path, count: int, seed: int, sampling: Sampling
) -> list[TracedQuery]:
    """The relQueries over a table, by its name."""
    (source,) = (source for source in SOURCES if source.name == table)
    return trace(source, folder, count=count, seed=seed, sampling=sampling)


def saturation(queries: Sequence[TracedQuery], served: Served) -> float:
    """RelQueries per second that fcfs serves when all arrive at once."""
    together = [replace(query, arrival=0.0) for query in queries]
    return len(queries) / serve(together, "fcfs", served).seconds


def serve(queries: Sequence[TracedQuery], name: Scheduler, served: Served) -> ServedTrace:
    """A run under a policy by its name."""
    if name == "static-chunked":
        return simulate(queries, static_chunked, served)
    return simulate(queries, make_policy(name, PolicySettings(served.cost)), served)


def _parts(runs: Sequence[ServedTrace]) -> tuple[float, float, float]:
    latencies = [outcome.latency for run in runs for outcome in run.outcomes]
    return (
        fmean(latency.waiting for latency in latencies),
        fmean(latency.core for latency in latencies),
        fmean(latency.tail for latency in latencies),
    )


def _hit_rate(runs: Sequence[ServedTrace]) -> float:
    outcomes = [outcome for run in runs for outcome in run.outcomes]
    prompts = sum(outcome.prompt_tokens for outcome in outcomes)
    return sum(outcome.cached_tokens for outcome in outcomes) / prompts
