"""Shortest remaining job first, request by request (paper 004, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.engine.cost.job_time import JobTime, uncached_tokens
from relquery.engine.cost.linear import LinearCost
from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.policies.prompts.backlog import Backlog
from relquery.engine.scheduling.policies.prompts.step import advance_and_add


@dataclass(frozen=True, slots=True)
class Srjf:
    """The policy; call it as `Policy` says.

    cost: converts the proxy to seconds, and decides whether joining a step pays off. job_time:
    a request's JCT; None for the proxy, uncached tokens times the cost's seconds per token.
    aging: seconds of JCT that a second of waiting makes up for, the paper's λ; in the authors' code
    it is in tokens per second, aging / cost.prefill_slope. calibrated: see Backlog.
    batch: let further prompts join a step if that pays off.
    """

    cost: LinearCost
    job_time: JobTime | None = None
    aging: float = 0.0
    calibrated: bool = True
    batch: bool = False

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Advance running requests, then add the prompt with the lowest score."""
        backlog: Backlog | None = memo
        if backlog is None:
            job_time = self.job_time or uncached_tokens(self.cost.prefill_slope)
            backlog = Backlog(state, job_time, self.aging, self.calibrated)
        else:
            backlog.update(state)
        draft, cost = Draft(state), self.cost if self.batch else None
        advance_and_add(draft, state, backlog.candidates(draft, state), cost)
        return draft.plan(), backlog
