"""Static priority: fixed when a relQuery arrives, by its tokens (paper 003, eq. 6-7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from relquery.engine.cost.linear import LinearCost
from relquery.engine.request.relquery import RelQuery
from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.policies.jobs.priority import Estimate, Fairness, Priorities
from relquery.engine.scheduling.policies.jobs.remaining import Remaining
from relquery.engine.scheduling.policies.steps import begin, decode, prefill


@dataclass(frozen=True, slots=True)
class TokenCount:
    """An Estimate: prompt tokens and maximum answer tokens, each times its seconds per token.

    Eq. 6 and 7 of paper 003, with one linear function for both. Declared rows that have not come
    count with a prompt of mean length.
    """

    seconds: float = 1.0

    def __call__(self, relquery: RelQuery, state: State) -> float:
        """See Estimate."""
        requests = chain(relquery.waiting, relquery.running)
        tokens = sum(request.prompt_tokens + request.max_tokens for request in requests)
        expected = relquery.expected * (relquery.mean_prompt + relquery.output_limit)
        return self.seconds * (tokens + expected)

    @classmethod
    def of(cls, cost: LinearCost, fairness: Fairness) -> TokenCount:
        """In seconds if priorities are weighed against waiting time, otherwise in tokens."""
        return cls(cost.prefill_slope if fairness.aging else 1.0)


@dataclass(frozen=True, slots=True)
class Static:
    """The policy; call it as `Policy` says.

    fairness: applied in addition to priorities. cost: gives the seconds per token, which are only
    needed for aging, and the remaining seconds, for deadlines.
    """

    fairness: Fairness = field(default_factory=Fairness)
    cost: LinearCost = field(default_factory=LinearCost)

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Compute whole prompts, of the smallest relQuery first, while one fits; else decode."""
        priorities: Priorities[Estimate] = memo or Priorities(
            TokenCount.of(self.cost, self.fairness),
            state.limits,
            self.fairness,
            fixed=True,
            remaining=Remaining(self.cost),
        )
        priorities.update(state)
        running = priorities.sort(state.running)
        draft = begin(Draft(state), priorities.overdue(state), running, priorities.is_urgent)
        waiting = (relquery.waiting for relquery in priorities.candidates(state, draft))
        prefill(draft, state, chain.from_iterable(waiting))
        if not draft.work or priorities.should_decode(draft):
            draft = Draft(state)
            decode(draft, running)
        return draft.plan(), priorities
