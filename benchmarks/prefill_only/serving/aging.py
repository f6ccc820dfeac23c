"""The effect of λ: a workload at several values, on a virtual clock with this machine's costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from benchmarks.prefill_only.serving.arrivals import Arrivals, service_seconds, shortest_remaining
from benchmarks.prefill_only.serving.traffic import Engine, Mode, Served, run
from benchmarks.prefill_only.workloads import Workload
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SimulatedExecutor, VirtualClock

AGINGS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class Aged:
    """A workload served with one λ. tokens: the same λ in prompt tokens per second."""

    aging: float
    tokens: float
    served: Served


@dataclass(frozen=True, slots=True)
class Sweep:
    """A workload under `srjf` with each λ, and under `fifo`, which does not depend on λ.

    load: the rate of arrivals, as a share of the most that srjf serves in the simulation.
    clairvoyant: a lower bound on the mean latency of any order, for inputs with nothing in common;
    else None.
    """

    workload: str
    load: float
    fifo: Served
    aged: tuple[Aged, ...]
    clairvoyant: float | None


def measure(workload: Workload, load: float, cost: LinearCost, seed: int) -> Sweep:
    """Serve the workload with each λ, one set of arrivals for all."""
    at_once = (0.0,) * len(workload.prompts)
    saturation = simulate(workload, at_once, "srjf", cost, 0.0).throughput
    come = Arrivals().draw(workload, load, saturation, seed)
    fifo = simulate(workload, come, "fifo", cost, 0.0)
    aged = [
        Aged(aging, _in_tokens(aging, cost), simulate(workload, come, "srjf", cost, aging))
        for aging in AGINGS
    ]
    alone = len(set(workload.users)) == len(workload.users)
    seconds = service_seconds(come, fifo.latencies)
    clairvoyant = shortest_remaining(come, seconds) if alone else None
    return Sweep(workload.name, load, fifo, tuple(aged), clairvoyant)


def _in_tokens(aging: float, cost: LinearCost) -> float:
    """λ in prompt tokens per second; without bound if tokens of a tiny network cost nothing."""
    return aging / cost.prefill_slope if cost.prefill_slope else inf


COLUMNS = ("workload", "λ", "tokens per second", "mean", "p99", "longest", "cached")


def rows(sweeps: list[Sweep]) -> Iterator[tuple[str, ...]]:
    """A line of a table for each workload and λ, under COLUMNS; fifo's first."""
    for sweep in sweeps:
        name = f"{sweep.workload} at {sweep.load:g} x"
        yield name, "fifo", "", *_latencies(sweep.fifo)
        for row in sweep.aged:
            yield name, f"{row.aging:g}", f"{row.tokens:,.0f}", *_latencies(row.served)
        if sweep.clairvoyant is not None:
            yield name, "clairvoyant", "", f"{sweep.clairvoyant:.2f}", "", "", ""


def _latencies(served: Served) -> Iterator[str]:
    for latency in (served.mean, served.p99, max(served.latencies)):
        yield f"{latency:.2f}"
    yield f"{served.cached:.0%}"


def simulate(
    workload: Workload, arrivals: tuple[float, ...], mode: Mode, cost: LinearCost, aging: float
) -> Served:
    """A service on a virtual clock."""
    clock = VirtualClock()
    engine = Engine(SimulatedExecutor(clock, cost), clock, clock.advance, cost)
    return run(workload, arrivals, mode, engine, aging)
