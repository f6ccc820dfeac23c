"""Shortest remaining time first, prompts mixed into the steps that decode: relquery's own policy.

Like RelServe it knows whole relQueries and the remaining work of each, and weighs who waits for
whom. It differs in three ways. A step may decode and compute prompts at once, so no step is spent
on a few prompts while all other requests stand still. A relQuery is charged only part of the steps
it decodes in, because others decode in them too. And a prompt is weighed only against more urgent
requests, by what is left of their answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, islice

from relquery.engine.cost import LinearCost
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.policies.priority import Fairness, Priorities
from relquery.engine.scheduling.policies.remaining import Remaining
from relquery.engine.scheduling.policies.steps import begin, decode
from relquery.engine.scheduling.reuse import Draft

_MOVED = 0.1
"""Share of a relQuery's requests that begin or end before it is estimated again."""


@dataclass(frozen=True, slots=True)
class Shortest:
    """The policy; call it as `Policy` says.

    cost: predicts the durations that it weighs. fairness: applied in addition to priorities. seed:
    see Remaining. remaining: another estimate of the remaining work.
    """

    cost: LinearCost
    fairness: Fairness = field(default_factory=Fairness)
    seed: int = 0
    remaining: Remaining | None = None

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Decode all running requests; add prompts, the most urgent first, if that pays off."""
        priorities: Priorities[Remaining] = memo or self._begin(state)
        if priorities.puts_off(state):
            draft = Draft(state)
            if _go_on(draft, state.running):
                return draft.plan(ahead=()), priorities
        priorities.update(state)
        running = priorities.sort(state.running)
        draft = begin(Draft(state), priorities.overdue(state), running, priorities.is_urgent)
        decode(draft, running)
        best = next(priorities.candidates(state, draft), None)
        if best is not None and not draft.preempt:
            bound = priorities[best.id]
            groups = {request.group for request in running}
            ahead = {number for number in groups if priorities[number] < bound}
            urgent = [request for request in running if request.group in ahead]
            if not urgent or self._pays(draft, best, urgent, priorities, state):
                following = _admit(draft, priorities.waiting(state), state.limits.max_num_seqs)
                return draft.plan(following if priorities.lasts else None), priorities
        return draft.plan(), priorities

    def _begin(self, state: State) -> Priorities[Remaining]:
        remaining = self.remaining or Remaining(self.cost, seed=self.seed, shared=True)
        return Priorities(remaining, state.limits, self.fairness, moved=_MOVED, remaining=remaining)

    def _pays(
        self,
        draft: Draft,
        best: RelQuery,
        urgent: Iterable[Request],
        priorities: Priorities[Remaining],
        state: State,
    ) -> bool:
        """Whether prompts of `best` save waiting requests more than they cost more urgent ones.

        Eq. 15 to 17 of paper 003, with what is left of an answer in place of its limit.
        """
        estimate = priorities.estimate
        tails: dict[int, float] = {}
        for request in urgent:
            tails[request.group] = max(estimate.left(request), tails.get(request.group, 0.0))
        lengths = best.waiting.lengths.cumsum()
        count = max(1, int(lengths.searchsorted(draft.tokens, "right")))
        limit = float(estimate.outputs(best)[:count].max())
        uncached = float(lengths[count - 1]) * estimate.miss_ratio(best, state)
        paused = self.cost.prefill_slope * uncached * len(tails)
        slower = self.cost.decode_slope * count * sum(min(tail, limit) for tail in tails.values())
        sooner = priorities.count * self.cost.decode_intercept * min(limit, max(tails.values()))
        return paused + slower < sooner


def _go_on(draft: Draft, running: Iterable[Request]) -> bool:
    """Plan the next tokens of all running requests; False if there is too little room for all."""
    return all(draft.advance(request) and draft.tokens > 0 for request in running)


def _admit(draft: Draft, relqueries: Iterable[RelQuery], count: int) -> tuple[Request, ...]:
    """Begin as many requests as there is room for; returns so many of those that come next."""
    waiting = chain.from_iterable(each.waiting for each in relqueries)
    for request in waiting:
        if not draft.admit(request):
            return (request, *islice(waiting, count - 1))
    return ()
