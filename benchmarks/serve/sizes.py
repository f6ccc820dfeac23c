"""How much `scripts/bench serve` measures."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.config import POLICIES, PolicyName


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    relqueries: of the trace over the demo model; runs: of each side. simulated: relQueries of the
    trace over the simulated machine; rows: the most rows of each. policies: those compared.
    streams: connections that are open at once; seconds: how long. requests: of the storm.
    """

    relqueries: int = 100
    runs: int = 3
    simulated: int = 1_000
    rows: int = 10
    policies: tuple[PolicyName, ...] = POLICIES
    streams: int = 2_000
    seconds: int = 60
    requests: int = 10_000


FULL = Sizes()
QUICK = Sizes(
    relqueries=10,
    runs=1,
    simulated=60,
    policies=("fcfs", "shortest"),
    streams=100,
    seconds=5,
    requests=400,
)


def choose(quick: bool) -> Sizes:
    """The sizes of a quick or a full run."""
    return QUICK if quick else FULL
