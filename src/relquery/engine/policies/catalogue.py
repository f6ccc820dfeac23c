"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relquery.config import PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.policies.fcfs import fcfs
from relquery.engine.policies.relserve import RelServe
from relquery.engine.policies.sarathi import sarathi
from relquery.engine.policies.shortest import Shortest
from relquery.engine.policies.static import static
from relquery.engine.schedule import Policy


@dataclass(frozen=True, slots=True)
class Settings:
    """What policies may want to know. cost: of the machine. For the rest see Priorities."""

    cost: LinearCost = field(default_factory=LinearCost)
    starvation: float | None = None
    seed: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)


_MAKERS: dict[PolicyName, Callable[[Settings], Policy]] = {
    "fcfs": lambda settings: fcfs,
    "sarathi": lambda settings: sarathi,
    "static": lambda settings: static,
    "relserve": lambda s: RelServe(s.cost, starvation=s.starvation, seed=s.seed),
    "relserve-pp": lambda s: RelServe(
        s.cost, transition="prefill", starvation=s.starvation, seed=s.seed
    ),
    "relserve-dp": lambda s: RelServe(
        s.cost, transition="decode", starvation=s.starvation, seed=s.seed
    ),
    "relserve-dpu": lambda s: RelServe(
        s.cost, adaptive=False, starvation=s.starvation, seed=s.seed
    ),
    "relserve-aba": lambda s: RelServe(s.cost, dynamic=False, starvation=s.starvation, seed=s.seed),
    "shortest": lambda s: Shortest(s.cost, s.starvation, s.seed),
}


WITHOUT_COST: frozenset[PolicyName] = frozenset({"fcfs", "sarathi", "static"})
"""Policies that predict no durations."""


def make_policy(name: PolicyName, settings: Settings | None = None) -> Policy:
    """The policy of a name."""
    return _MAKERS[name](settings or Settings())
