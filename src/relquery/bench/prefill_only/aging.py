"""What λ does: a workload at several values of it, on a virtual clock with this machine's costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from relquery.bench.prefill_only.traffic import Engine, Mode, Served, run
from relquery.bench.prefill_only.workloads import Workload
from relquery.engine.clock import VirtualClock
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SimulatedExecutor

AGINGS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class Aged:
    """A workload served with one λ. tokens: the same λ in prompt tokens per second."""

    aging: float
    tokens: float
    served: Served


@dataclass(frozen=True, slots=True)
class Sweep:
    """A workload under `srjf` with each λ, and under `fifo`, which no λ changes.

    load: the rate of arrivals, of what srjf serves at most, as simulated.
    """

    workload: str
    load: float
    fifo: Served
    aged: tuple[Aged, ...]


def measure(workload: Workload, load: float, cost: LinearCost) -> Sweep:
    """Serve the workload with each λ, one set of arrivals for all."""
    rate = load * _run(workload, inf, "srjf", cost, 0.0).throughput
    fifo = _run(workload, rate, "fifo", cost, 0.0)
    aged = [
        Aged(aging, aging / cost.prefill_slope, _run(workload, rate, "srjf", cost, aging))
        for aging in AGINGS
    ]
    return Sweep(workload.name, load, fifo, tuple(aged))


COLUMNS = ("workload", "λ", "tokens per second", "mean", "p99", "longest", "cached")


def rows(sweeps: list[Sweep]) -> Iterator[tuple[str, ...]]:
    """A line of a table for each workload and λ, under COLUMNS; fifo's first."""
    for sweep in sweeps:
        name = f"{sweep.workload} at {sweep.load:g} x"
        yield name, "fifo", "", *_latencies(sweep.fifo)
        for row in sweep.aged:
            yield name, f"{row.aging:g}", f"{row.tokens:,.0f}", *_latencies(row.served)


def _latencies(served: Served) -> Iterator[str]:
    for latency in (served.mean, served.p99, max(served.latencies)):
        yield f"{latency:.2f}"
    yield f"{served.cached:.0%}"


def _run(workload: Workload, rate: float, mode: Mode, cost: LinearCost, aging: float) -> Served:
    clock = VirtualClock()
    engine = Engine(SimulatedExecutor(clock, cost), clock, clock.advance, cost)
    return run(workload, workload.at(rate), mode, engine, aging)
