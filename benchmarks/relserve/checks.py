"""Seconds reported by paper 003, compared with the simulation; and starvation thresholds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.relserve.simulated import Scheduler, load_trace, saturation, serve
from relquery.engine.machines import SERVED
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy
from relquery.engine.scheduling.policies.priority import Fairness
from relquery.traces.simulate import simulate
from relquery.traces.trace import at_rate

MODEL, TABLE = "a100-opt13b", "ratebeer"
"""The setting of Fig. 11, Fig. 12 and Table 6: OPT-13B and the beers."""
TABLE_6 = {0.5: 202.2, 0.6: 171.1, 0.7: 158.1, 0.8: 156.4, 0.9: 152.6, 1.0: 146.7}
"""Seconds of service of 100 relQueries, by relQueries per second."""
FIGURE_1 = {"fcfs": 35.0, "relserve": 13.0}
"""Mean latencies of vLLM and RelServe, OPT-13B, films, 1.0 relQueries per second (section 1)."""
THRESHOLDS = (None, 1.0, 0.5, 0.2, 0.1, 0.05)


@dataclass(frozen=True, slots=True)
class Absolute:
    """Seconds of service by rate, and mean latencies of films at one relQuery per second."""

    service: dict[float, float]
    latencies: dict[str, float]


@dataclass(frozen=True, slots=True)
class Threshold:
    """Latencies of relserve under a starvation threshold, in seconds, averaged over seeds."""

    seconds: float | None
    load: float
    mean: float
    worst: float
    unit_waiting: float


def absolute(folder: Path, seeds: tuple[int, ...], count: int = 100) -> Absolute:
    """The paper's settings at the paper's rates."""
    served = SERVED[MODEL]
    beers = [load_trace(TABLE, folder, count, seed, "shared") for seed in seeds]
    films = [load_trace("movies", folder, count, seed, "shared") for seed in seeds]
    service = {
        rate: fmean(serve(list(at_rate(each, rate)), "relserve", served).seconds for each in beers)
        for rate in TABLE_6
    }
    names: tuple[Scheduler, ...] = ("fcfs", "relserve")
    latencies: dict[str, float] = {
        name: fmean(fmean(serve(each, name, served).latencies()) for each in films)
        for name in names
    }
    return Absolute(service, latencies)


def thresholds(
    folder: Path, seeds: tuple[int, ...], load: float, count: int = 100
) -> list[Threshold]:
    """Latencies under relserve by threshold, at a share of the highest rate fcfs can serve."""
    served = SERVED[MODEL]
    traces = []
    for seed in seeds:
        queries = load_trace(TABLE, folder, count, seed, "shared")
        traces.append(list(at_rate(queries, load * saturation(queries, served))))
    rows = []
    for seconds in THRESHOLDS:
        policy = make_policy("relserve", PolicySettings(served.cost, Fairness(seconds)))
        runs = [simulate(queries, policy, served) for queries in traces]
        waited = (
            outcome.latency.waiting / len(outcome.query.rows)
            for run in runs
            for outcome in run.outcomes
        )
        rows.append(
            Threshold(
                seconds,
                load,
                fmean(fmean(run.latencies()) for run in runs),
                fmean(max(run.latencies()) for run in runs),
                max(waited),
            )
        )
    return rows


def hour(folder: Path, seed: int, seconds: float = 3_600.0) -> tuple[float, float, int]:
    """Seconds of service near saturation, the seconds it took to simulate them, and requests."""
    served = SERVED[MODEL]
    rate = 0.9 * saturation(load_trace(TABLE, folder, 100, seed, "independent"), served)
    queries = list(
        at_rate(load_trace(TABLE, folder, int(rate * seconds), seed, "independent"), rate)
    )
    start = time.perf_counter()
    run = serve(queries, "shortest", served)
    return run.seconds, time.perf_counter() - start, sum(len(query.rows) for query in queries)
