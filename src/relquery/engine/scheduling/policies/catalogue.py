"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from relquery.config import EngineConfig, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.scheduling.plan import Policy
from relquery.engine.scheduling.policies.priority import Fairness
from relquery.engine.scheduling.policies.relserve import RelServe, Static
from relquery.engine.scheduling.policies.sarathi import sarathi
from relquery.engine.scheduling.policies.shortest import Shortest
from relquery.engine.scheduling.policies.srjf import Fifo, Srjf
from relquery.engine.scheduling.policies.steps import fcfs


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that policies may need.

    cost: of the machine. seed: for samples.
    """

    cost: LinearCost = field(default_factory=LinearCost)
    fairness: Fairness = field(default_factory=Fairness)
    seed: int = 0

    @classmethod
    def of(cls, config: EngineConfig, cost: LinearCost | None = None) -> Settings:
        """The settings from an engine's config and from measurements."""
        fairness = Fairness(config.starvation, config.aging, config.weights, config.tail)
        return cls(cost or LinearCost(), fairness)


def _relserve(given: Settings, **halves: Any) -> Policy:
    return RelServe(given.cost, fairness=given.fairness, seed=given.seed, **halves)


def _srjf(given: Settings, **kind: bool) -> Policy:
    return Srjf(given.cost, given.fairness.aging, **kind)


_MAKERS: dict[PolicyName, Callable[[Settings], Policy]] = {
    "fcfs": lambda given: fcfs,
    "sarathi": lambda given: sarathi,
    "static": lambda given: Static(given.fairness, given.cost),
    "relserve": _relserve,
    "relserve-pp": lambda given: _relserve(given, transition="prefill"),
    "relserve-dp": lambda given: _relserve(given, transition="decode"),
    "relserve-dpu": lambda given: _relserve(given, adaptive=False),
    "relserve-aba": lambda given: _relserve(given, dynamic=False),
    "shortest": lambda given: Shortest(given.cost, given.fairness, given.seed),
    "fifo": lambda given: Fifo(given.cost),
    "srjf-static": lambda given: _srjf(given, calibrated=False),
    "srjf-calibrated": _srjf,
    "srjf": lambda given: _srjf(given, batch=True),
}


def needs_cost(config: EngineConfig) -> bool:
    """Whether a config's policy predicts durations."""
    if config.policy == "static":
        return config.aging > 0
    return config.policy not in ("fcfs", "sarathi", "fifo")


def make_policy(name: PolicyName, settings: Settings | None = None) -> Policy:
    """The policy with this name."""
    return _MAKERS[name](settings or Settings())
