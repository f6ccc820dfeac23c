"""Settings in `--additional-config '{"relquery": {...}}'`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from relquery.config import EngineConfig, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.scheduling.policies.catalogue import PolicySettings as OfPolicy
from relquery.errors import ConfigError, unknown

KEY = "relquery"
VLLM_POLICIES: tuple[PolicyName, ...] = ("fcfs", "static", "relserve", "shortest", "srjf")
"""Policies that run in vLLM."""

_WITHOUT_TAIL = ("fcfs", "srjf")
_COSTS = [field.name for field in fields(LinearCost)]


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """policy: one of VLLM_POLICIES. starvation, aging, weights, tail: see EngineConfig.

    cost: what steps cost: a file that `relquery calibrate` has written, or its numbers. Without it
    the default stands, and the policies correct it by how long steps take.
    """

    policy: PolicyName = "shortest"
    starvation: float | None = None
    aging: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    tail: float | None = None
    cost: LinearCost = field(default_factory=LinearCost)

    def of_policy(self, limits: EngineConfig) -> OfPolicy:
        """What the policy is made of. Clients name their tenants: only names with a weight count,
        as a new one for each request would otherwise have a share of its own.
        """
        given = OfPolicy.of(limits, self.cost)
        return replace(given, fairness=replace(given.fairness, others_share=True))

    @classmethod
    def of(cls, additional: object) -> PluginSettings:
        """Read vLLM's additional config. Raises ConfigError."""
        given = additional.get(KEY, {}) if isinstance(additional, Mapping) else {}
        if not isinstance(given, Mapping):
            raise ConfigError(f"{KEY} in the additional config is {given!r}; it must be an object.")
        known = [each.name for each in fields(cls)]
        for name in given:
            if name not in known:
                raise ConfigError(unknown("setting", name, known, of=f"{KEY!r} in vLLM"))
        values = dict(given)
        if "cost" in values:
            values["cost"] = _cost(values["cost"])
        settings = cls(**values)
        if settings.policy not in VLLM_POLICIES:
            raise ConfigError(unknown("policy", settings.policy, VLLM_POLICIES, of="vLLM"))
        if settings.tail is not None and settings.policy in _WITHOUT_TAIL:
            raise ConfigError(
                f"tail has no effect under the policy {settings.policy}. Leave it out, or choose "
                "shortest, relserve or static."
            )
        return settings


def _cost(given: object) -> LinearCost:
    if isinstance(given, str):
        try:
            given = json.loads(Path(given).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cost names {given!r}, which cannot be read: {error}.") from None
    numbers: Any = given.get("cost", given) if isinstance(given, Mapping) else None
    if not isinstance(numbers, Mapping) or not set(numbers) <= set(_COSTS):
        raise ConfigError(
            f"cost must be a file of `relquery calibrate`, or numbers by name: {', '.join(_COSTS)}."
        )
    return LinearCost(**{name: float(value) for name, value in numbers.items()})
