"""Published traces of single requests: Mooncake's, on one simulated machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.baselines import Scheduler
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.relserve.simulated import saturation, serve
from benchmarks.relserve.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.engine.machines import SERVED, Served
from relquery.traces.imports import MOONCAKE_BLOCK, import_trace
from relquery.traces.simulate import Summary, summarize
from relquery.traces.trace import at_rate

WORDS = template("relserve")
NAMES = ("conversation", "synthetic")
MODEL, CACHE, LOAD = "a100-llama70b", 1_000_000, 0.9
OTHERS: tuple[Scheduler, ...] = ("fcfs", "sarathi", "lpm")
OURS: tuple[Scheduler, ...] = ("srjf", "relserve", "shortest")
POLICIES = OTHERS + OURS


@dataclass(slots=True)
class Published(Part):
    """The part. served: by trace and policy."""

    name = "published"
    title = "Mooncake's traces"
    sizes: Sizes = FULL
    served: dict[str, dict[Scheduler, Summary]] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = choose(settings.quick)
        paths = {name: settings.data / "traces" / f"mooncake_{name}.jsonl" for name in NAMES}
        for name, path in paths.items():
            if path.exists():
                self.served[name] = _serve_all(path, self.sizes.requests, settings.threads)
                yield from _figures(name, self.served[name])
            else:
                say(f"{path} is missing")

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        requests = self.sizes.requests
        yield WORDS.block("published", requests=requests, cache=CACHE, model=MODEL, load=LOAD)
        yield from table(
            ("trace", "policy", "mean", "median", "p99", "at most", "hits"),
            [
                (
                    name,
                    policy,
                    *(f"{getattr(each.total, of):.1f}" for of in ("mean", "p50", "p99", "max")),
                    f"{each.hit_rate:.1%}",
                )
                for name, by_policy in self.served.items()
                for policy, each in by_policy.items()
            ],
        )


def machine() -> Served:
    """The machine, with blocks as large as the trace's."""
    served = SERVED[MODEL]
    return replace(
        served, limits=replace(served.limits, cache_tokens=CACHE, block_size=MOONCAKE_BLOCK)
    )


def _serve_all(path: Path, requests: int, workers: int) -> dict[Scheduler, Summary]:
    rate = LOAD * saturation(import_trace(path, first=requests), machine())
    job = partial(_serve, path, requests, rate)
    if workers == 1:
        return {policy: job(policy) for policy in POLICIES}
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return dict(zip(POLICIES, pool.map(job, POLICIES), strict=True))


def _serve(path: Path, requests: int, rate: float, policy: Scheduler) -> Summary:
    """The first requests of a trace, `rate` a second on average, under a policy."""
    queries = import_trace(path, first=requests)
    faster = rate * queries[-1].arrival / len(queries)
    return summarize(serve([*at_rate(queries, faster)], policy, machine()))


def _figures(name: str, served: dict[Scheduler, Summary]) -> Iterator[Figure]:
    """How much sooner the best of ours answers than the best of the others."""
    for of, goal in (("mean", 1.0), ("p99", None)):
        (ours, best), (theirs, other) = (
            min((getattr(served[each].total, of), each) for each in names)
            for names in (OURS, OTHERS)
        )
        note = f"{theirs:.1f} s ({other}) / {ours:.1f} s ({best})"
        yield Figure(f"{name}_{of}_gain", theirs / ours, goal, note=note)
