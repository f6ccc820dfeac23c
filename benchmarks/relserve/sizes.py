"""How much `scripts/bench relserve` measures."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.relserve.simulated import LOADS
from relquery.engine.machines import SERVED


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    models: names of the simulated models. tables: the most tables. count: relQueries per trace.
    long: relQueries of a longer service. engine: relQueries on the real engine. model: the model it
    runs. seeds: traces per setting. hour: seconds to simulate when timing the simulation.
    requests: of each published trace. relqueries: number waiting in a long queue. steps: steps
    timed with it.
    """

    models: tuple[str, ...] = tuple(SERVED)
    tables: int = 5
    count: int = 100
    seeds: int = 3
    loads: tuple[float, ...] = LOADS
    long: int = 500
    engine: int = 50
    model: str = "random:layers=8,hidden=288,heads=4,ffn=1152"
    hour: float = 3_600.0
    requests: int = 4_000
    relqueries: int = 1_000
    steps: int = 300


FULL = Sizes()
QUICK = Sizes(
    models=("a100-opt13b",),
    tables=1,
    count=12,
    seeds=1,
    long=20,
    engine=8,
    model="random:layers=2,hidden=64,heads=2",
    hour=60.0,
    requests=100,
    relqueries=20,
    steps=30,
)


def choose(quick: bool) -> Sizes:
    """The sizes of a quick or a full run."""
    return QUICK if quick else FULL
