"""Policies that the papers compare theirs with, and parts of theirs alone.

See paper 003, Fig. 10 and paper 004, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from relquery.config import PolicyName
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Memo, Plan, Policy, State
from relquery.engine.scheduling.policies import catalogue
from relquery.engine.scheduling.policies.catalogue import PolicySettings
from relquery.engine.scheduling.policies.priority import Estimate, Priorities
from relquery.engine.scheduling.policies.relserve import RelServe, Static
from relquery.engine.scheduling.policies.srjf import Backlog, Candidate, Srjf, advance_and_add
from relquery.engine.scheduling.reuse import Draft, cached_tokens

Baseline = Literal[
    "relserve-pp",
    "relserve-dp",
    "relserve-dpu",
    "relserve-aba",
    "fifo",
    "srjf-static",
    "srjf-calibrated",
    "lpm",
]
"""Names of these policies.

relserve-pp, relserve-dp: with prompts, or with decodes, always first in transition.
relserve-dpu, relserve-aba: its priorities, or its arrangement of batches, alone.
fifo: prompts one by one, in the order of arrival.
srjf-static: by the job time that a request had when it came.
srjf-calibrated: the policy of paper 004, one prompt a step.
lpm: the request with the longest cached prefix first, as in SGLang.
"""
Scheduler = PolicyName | Baseline


def make_policy(name: Scheduler, settings: PolicySettings | None = None) -> Policy:
    """The policy with this name."""
    given = settings or PolicySettings()
    if name in _MAKERS:
        return _MAKERS[name](given)
    return catalogue.make_policy(cast(PolicyName, name), given)


@dataclass(frozen=True, slots=True)
class FixedTransition(RelServe):
    """RelServe in which prompts always go first in transition if `change` is negative, else
    decodes."""

    change: float = -1.0

    def _change(
        self, draft: Draft, running: Collection[RelQuery], waiting: int, state: State
    ) -> float:
        return self.change


@dataclass(frozen=True, slots=True)
class PrioritiesAlone(Static):
    """RelServe's Dynamic Priority Updater without its Adaptive Batch Arranger."""

    def begin(self, state: State) -> Priorities[Estimate]:
        """See Static."""
        return RelServe(self.cost, self.fairness).begin(state)


@dataclass(frozen=True, slots=True)
class ArrangementAlone(RelServe):
    """RelServe's Adaptive Batch Arranger with static priorities."""

    def begin(self, state: State) -> Priorities[Estimate]:
        """See RelServe."""
        return Static(self.fairness, self.cost).begin(state)


def fifo(state: State, memo: Memo) -> tuple[Plan, Memo]:
    """Advance running requests, then add the prompt that arrived first."""
    limits, pool = state.limits, state.pool
    candidates = (
        Candidate(request, request.length - sum(cached_tokens(request, limits, pool)))
        for request in state.waiting
    )
    draft = Draft(state)
    advance_and_add(draft, state, candidates, None)
    return draft.plan(), memo


@dataclass(frozen=True, slots=True)
class FixedJobTime(Srjf):
    """SRJF by the job time that a request had when it came."""

    def begin(self, state: State) -> Backlog:
        """See Srjf."""
        return _FixedBacklog(state, self.weight)


class _FixedBacklog(Backlog):
    """It follows no block."""

    def keys(self, request: Request) -> Sequence[bytes]:
        return ()

    def beside(self, request: Request) -> int:
        return sum(cached_tokens(request, self._limits, self._pool))


@dataclass(frozen=True, slots=True)
class LongestPrefix(Srjf):
    """The request with the longest cached prefix first, and of equal ones the first."""

    def begin(self, state: State) -> Backlog:
        """See Srjf."""
        return _ByPrefix(state, 0.0)


class _ByPrefix(Backlog):
    """What is not cached does not count."""

    def tokens(self, request: Request) -> int:
        return 0


def _relserve(kind: type[RelServe]) -> Callable[[PolicySettings], Policy]:
    return lambda given: kind(given.cost, given.fairness, given.seed)


def _transition(change: float) -> Callable[[PolicySettings], Policy]:
    return lambda given: FixedTransition(given.cost, given.fairness, given.seed, change=change)


def _srjf(kind: type[Srjf]) -> Callable[[PolicySettings], Policy]:
    return lambda given: kind(given.cost, given.fairness.aging, batch=False)


_MAKERS: dict[Baseline, Callable[[PolicySettings], Policy]] = {
    "relserve-pp": _transition(-1.0),
    "relserve-dp": _transition(1.0),
    "relserve-dpu": lambda given: PrioritiesAlone(given.fairness, given.cost),
    "relserve-aba": _relserve(ArrangementAlone),
    "fifo": lambda given: fifo,
    "srjf-static": _srjf(FixedJobTime),
    "srjf-calibrated": _srjf(Srjf),
    "lpm": lambda given: LongestPrefix(given.cost),
}
