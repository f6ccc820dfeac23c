"""Average latencies under each policy: three models, the tables at hand, the loads of paper 003."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from relquery.bench.relserve.clairvoyant import clairvoyant
from relquery.bench.relserve.traces import SOURCES, trace
from relquery.config import PolicyName
from relquery.engine.costs import SERVED, Served
from relquery.engine.policies.catalogue import Settings, make_policy
from relquery.serving.simulate import Run, approximate_tokens, simulate
from relquery.serving.trace import TracedQuery
from relquery.serving.workload import at_rate

LOADS = (0.7, 0.85, 1.0, 1.45)
"""RelQueries that arrive, as a share of what fcfs serves at most. In Table 6 of paper 003 service
takes 1.47 times as long as the arrivals at the highest rate, and as long as these at half of it."""
POLICIES: tuple[PolicyName, ...] = ("fcfs", "sarathi", "static", "relserve", "shortest")
OURS: tuple[PolicyName, ...] = ("relserve", "shortest")
ABLATIONS: tuple[PolicyName, ...] = (
    "relserve-pp",
    "relserve-dp",
    "relserve-dpu",
    "relserve-aba",
)


@dataclass(frozen=True, slots=True)
class Job:
    """A model's costs, a table, and how much of it. seeds: one trace each, averaged."""

    model: str
    table: str
    count: int
    seeds: tuple[int, ...]
    loads: tuple[float, ...]
    policies: tuple[PolicyName, ...]
    bound: bool
    folder: Path


@dataclass(frozen=True)
class Measured:
    """Mean latencies of one setting, in seconds: by load, then by policy, averaged over seeds.

    saturation: relQueries per second that fcfs serves at most; prompt_tokens: of a request, on
    average; hit_rate: of fcfs at the highest load. bounds: by load, of the clairvoyant. parts:
    waiting, core and tail of each policy at the highest load.
    """

    model: str
    table: str
    count: int
    saturation: float
    prompt_tokens: float
    hit_rate: float
    means: dict[float, dict[PolicyName, float]]
    bounds: dict[float, float]
    parts: dict[PolicyName, tuple[float, float, float]]

    @cached_property
    def highest(self) -> dict[PolicyName, float]:
        """Means at the highest load."""
        return self.means[max(self.means)]

    def best(self, load: float) -> float:
        """Of our policies."""
        return min(self.means[load][name] for name in OURS)

    def over(self, name: PolicyName, other: PolicyName | None = None) -> float:
        """Mean of a policy over that of another, or of the best of ours, at the highest load."""
        load = max(self.means)
        return self.means[load][name] / (self.means[load][other] if other else self.best(load))

    def waiting(self, name: PolicyName) -> float:
        """Share of a policy's latencies before the first request starts, at the highest load."""
        return self.parts[name][0] / sum(self.parts[name])

    @property
    def least(self) -> float:
        """The least of fcfs and static over the best of ours, at any load."""
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
    traces = [load_trace(job.table, job.folder, job.count, seed) for seed in job.seeds]
    rates = [saturation(queries, served) for queries in traces]
    means: dict[float, dict[PolicyName, float]] = {}
    bounds: dict[float, float] = {}
    parts: dict[PolicyName, tuple[float, float, float]] = {}
    hits = 0.0
    for load in job.loads:
        arriving = [
            list(at_rate(queries, load * rate)) for queries, rate in zip(traces, rates, strict=True)
        ]
        means[load] = {}
        for name in job.policies:
            runs = [serve(queries, name, served) for queries in arriving]
            means[load][name] = fmean(fmean(run.latencies()) for run in runs)
            if load == max(job.loads):
                parts[name] = _parts(runs)
                hits = _hit_rate(runs) if name == "fcfs" else hits
        if job.bound and load >= 1:
            bounds[load] = clairvoyant(arriving, served)
    prompts = [len(approximate_tokens(p)) for queries in traces for q in queries for p in q.prompts]
    return Measured(
        job.model, job.table, job.count, fmean(rates), fmean(prompts), hits, means, bounds, parts
    )


def load_trace(table: str, folder: Path, count: int, seed: int) -> list[TracedQuery]:
    """The relQueries over a table, by its name."""
    (source,) = (source for source in SOURCES if source.name == table)
    return trace(source, folder, count=count, seed=seed)


def saturation(queries: Sequence[TracedQuery], served: Served) -> float:
    """RelQueries per second that fcfs serves when all come at once."""
    together = [replace(query, arrival=0.0) for query in queries]
    return len(queries) / serve(together, "fcfs", served).seconds


def serve(queries: Sequence[TracedQuery], name: PolicyName, served: Served) -> Run:
    """A run under a policy by its name."""
    return simulate(queries, make_policy(name, Settings(served.cost)), served)


def _parts(runs: Sequence[Run]) -> tuple[float, float, float]:
    latencies = [outcome.latency for run in runs for outcome in run.outcomes]
    return (
        fmean(latency.waiting for latency in latencies),
        fmean(latency.core for latency in latencies),
        fmean(latency.tail for latency in latencies),
    )


def _hit_rate(runs: Sequence[Run]) -> float:
    outcomes = [outcome for run in runs for outcome in run.outcomes]
    prompts = sum(outcome.prompt_tokens for outcome in outcomes)
    return sum(outcome.cached_tokens for outcome in outcomes) / prompts
