"""Static priority: each relQuery's is fixed at its arrival by its tokens (paper 003, eq. 6-7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from relquery.engine.policies.priority import Estimate, Fairness, Priorities
from relquery.engine.policies.steps import begin, decode, prefill
from relquery.engine.relquery import RelQuery
from relquery.engine.schedule import Draft, Memo, Plan, State


@dataclass(frozen=True, slots=True)
class Static:
    """The policy; call it as `Policy` says. fairness: beyond the order of priorities."""

    fairness: Fairness = field(default_factory=Fairness)

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Compute whole prompts, of the smallest relQuery first, while one fits; else decode."""
        priorities: Priorities[Estimate] = memo or Priorities(
            count_tokens, state.limits, self.fairness, fixed=True
        )
        priorities.update(state)
        running = priorities.sort(state.running)
        draft = begin(Draft(state), priorities.overdue(state), running, priorities.starves)
        waiting = (relquery.waiting for relquery in priorities.waiting(state))
        prefill(draft, state, chain.from_iterable(waiting))
        if not draft.work:
            decode(draft, running)
        return draft.plan(), priorities


def count_tokens(relquery: RelQuery, state: State) -> float:
    """Sum over the requests of prompt tokens and of the tokens that the answer may have."""
    requests = chain(relquery.waiting, relquery.running)
    return float(sum(request.prompt_tokens + request.max_tokens for request in requests))
