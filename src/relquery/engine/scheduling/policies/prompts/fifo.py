"""First in, first out, a prompt a step: what paper 004 compares with."""

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

    batch: let further prompts join a step where `cost` says that it pays.
    """

    cost: LinearCost
    batch: bool = False

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Advance what runs, then add the prompt that came first."""
        limits, pool = state.limits, state.pool
        candidates = (
            Candidate(request, request.length - sum(cached_tokens(request, limits, pool)))
            for request in state.waiting
        )
        draft = Draft(state)
        advance_and_add(draft, state, candidates, self.cost if self.batch else None)
        return draft.plan(), memo
