"""First in, first out, one prompt per step: the baseline of paper 004."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.engine.cost.linear import LinearCost
from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.policies.prompts.step import Candidate, advance_and_add
from relquery.engine.scheduling.reuse import cached_tokens


@dataclass(frozen=True, slots=True)
class Fifo:
    """The policy; call it as `Policy` says.

    batch: let further prompts join a step if that pays off according to `cost`.
    """

    cost: LinearCost
    batch: bool = False

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Advance running requests, then add the prompt that arrived first."""
        limits, pool = state.limits, state.pool
        candidates = (
            Candidate(request, request.length - sum(cached_tokens(request, limits, pool)))
            for request in state.waiting
        )
        draft = Draft(state)
        advance_and_add(draft, state, candidates, self.cost if self.batch else None)
        return draft.plan(), memo
