"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relquery.config import EngineConfig, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.scheduling.plan import Policy
from relquery.engine.scheduling.policies.priority import Fairness
from relquery.engine.scheduling.policies.relserve import RelServe, Static
from relquery.engine.scheduling.policies.shortest import Shortest
from relquery.engine.scheduling.policies.srjf import Srjf
from relquery.engine.scheduling.policies.steps import fcfs, sarathi


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Settings that policies may need.

    cost: of the machine. seed: for samples.
    """

    cost: LinearCost = field(default_factory=LinearCost)
    fairness: Fairness = field(default_factory=Fairness)
    seed: int = 0

    @classmethod
    def of(cls, config: EngineConfig, cost: LinearCost | None = None) -> PolicySettings:
        """The settings from an engine's config and from measurements."""
        fairness = Fairness(config.starvation, config.aging, config.weights, config.tail)
        return cls(cost or LinearCost(), fairness)


_MAKERS: dict[PolicyName, Callable[[PolicySettings], Policy]] = {
    "fcfs": lambda given: fcfs,
    "sarathi": lambda given: sarathi,
    "static": lambda given: Static(given.fairness, given.cost),
    "relserve": lambda given: RelServe(given.cost, given.fairness, given.seed),
    "shortest": lambda given: Shortest(given.cost, given.fairness, given.seed),
    "srjf": lambda given: Srjf(given.cost, given.fairness.aging),
}


def needs_cost(config: EngineConfig) -> bool:
    """Whether a config's policy predicts durations."""
    if config.policy == "static":
        return config.aging > 0
    return config.policy not in ("fcfs", "sarathi")


def make_policy(name: PolicyName, settings: PolicySettings | None = None) -> Policy:
    """The policy with this name."""
    return _MAKERS[name](settings or PolicySettings())
