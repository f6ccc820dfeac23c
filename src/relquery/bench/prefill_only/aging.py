"""What λ does: the posts at several values of it, on a virtual clock with this machine's costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from relquery.bench.prefill_only.traffic import Engine, Served, run
from relquery.bench.prefill_only.workloads import Workload
from relquery.engine.clock import VirtualClock
from relquery.engine.cost import LinearCost
from relquery.engine.executor import SimulatedExecutor

AGINGS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
LOAD = 1.0
"""Of what srjf serves at most, as simulated."""


@dataclass(frozen=True, slots=True)
class Aged:
    """A workload served with one λ. tokens: the same λ in prompt tokens per second."""

    aging: float
    tokens: float
    served: Served


def measure(workload: Workload, cost: LinearCost) -> list[Aged]:
    """Serve the workload with each λ, one set of arrivals for all."""
    at_once = _run(workload, inf, cost, 0.0)
    rate = LOAD * at_once.throughput
    return [
        Aged(aging, aging / cost.prefill_slope, _run(workload, rate, cost, aging))
        for aging in AGINGS
    ]


def _run(workload: Workload, rate: float, cost: LinearCost, aging: float) -> Served:
    clock = VirtualClock()
    engine = Engine(SimulatedExecutor(clock, cost), clock, clock.advance, cost)
    return run(workload, workload.at(rate), "srjf", engine, aging)
