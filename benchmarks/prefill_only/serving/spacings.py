"""How much an order gains under different arrival patterns, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.prefill_only.serving.aging import simulate
from benchmarks.prefill_only.serving.arrivals import SPACING, Arrivals
from benchmarks.prefill_only.serving.traffic import AGING
from benchmarks.prefill_only.workloads import Workload
from relquery.engine.cost import LinearCost

LOADS = (0.5, 1.0, 2.0, 4.0)
FACTORS = (0.0, 0.5, 1.0, 2.0)
SECONDS = 0.1
"""Seconds between requests of a user in the paper's code, for its own devices and prompts."""


@dataclass(frozen=True, slots=True)
class Spaced:
    """Mean latencies of fifo divided by those of srjf, by load, averaged over several draws."""

    name: str
    gains: dict[float, float]


def measure(workload: Workload, cost: LinearCost, seeds: Sequence[int]) -> list[Spaced]:
    """Serve the workload in each pattern at each load; one draw of arrivals for each seed."""
    at_once = (0.0,) * len(workload.prompts)
    saturation = simulate(workload, at_once, "srjf", cost, AGING).throughput
    return [
        Spaced(
            name,
            {load: _gain(workload, each, load, saturation, cost, seeds) for load in LOADS},
        )
        for name, each in _patterns(saturation).items()
    ]


def _patterns(saturation: float) -> dict[str, Arrivals]:
    users = {
        f"users, {factor * SPACING:g} / x apart": Arrivals("users", factor * SPACING)
        for factor in FACTORS
    }
    literal = {f"users, {SECONDS:g} s apart": Arrivals("users", SECONDS * saturation)}
    return {**users, **literal, "shuffled": Arrivals("shuffled")}


def _gain(
    workload: Workload,
    arrivals: Arrivals,
    load: float,
    saturation: float,
    cost: LinearCost,
    seeds: Sequence[int],
) -> float:
    draws = [arrivals.draw(workload, load, saturation, seed) for seed in seeds]
    fifo, srjf = (
        fmean(simulate(workload, come, mode, cost, AGING).mean for come in draws)
        for mode in ("fifo", "srjf")
    )
    return fifo / srjf


COLUMNS = ("arrivals", *(f"{load:g} x" for load in LOADS))


def rows(found: Sequence[Spaced]) -> Iterator[tuple[str, ...]]:
    """A line of a table for each pattern, under COLUMNS."""
    for spaced in found:
        yield spaced.name, *(f"{gain:.2f}" for gain in spaced.gains.values())
