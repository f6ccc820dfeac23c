"""Shortest remaining time first, prompts mixed into the steps that decode: relquery's own policy.

As RelServe it knows whole relQueries and what is left of each, and weighs who waits for whom. In
two things it goes beyond: a step may decode and compute prompts at once, so that none is spent on
a few prompts alone while all others stand still; and a prompt is weighed against those only that
are more urgent, by what is left of their answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, takewhile

from relquery.engine.cost import LinearCost
from relquery.engine.policies.priority import Priorities
from relquery.engine.policies.remaining import Remaining
from relquery.engine.policies.steps import decode
from relquery.engine.relquery import RelQuery
from relquery.engine.request import Request
from relquery.engine.schedule import Draft, Memo, Plan, State


@dataclass(frozen=True, slots=True)
class Shortest:
    """The policy; call it as `Policy` says.

    cost: predicts the durations that it weighs. starvation: see Priorities. seed: see Remaining.
    """

    cost: LinearCost
    starvation: float | None = None
    seed: int = 0

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Decode all that runs; add prompts, the most urgent first, where that pays."""
        known: tuple[Priorities, Remaining] = memo or self._begin()
        priorities, remaining = known
        priorities.update(state)
        draft = Draft(state)
        running = sorted(state.running, key=lambda one: priorities[one.group])
        decode(draft, running)
        best = next(priorities.waiting(state), None)
        if best is not None and not draft.preempt:
            urgent = list(
                takewhile(lambda one: priorities[one.group] < priorities[best.id], running)
            )
            ratio = remaining.miss_ratio(best, state) if urgent else 0.0
            if not urgent or self._pays(draft, best, ratio, urgent, priorities.count):
                _admit(draft, priorities.waiting(state))
        return draft.plan(), known

    def _begin(self) -> tuple[Priorities, Remaining]:
        remaining = Remaining(self.cost, seed=self.seed)
        return Priorities(remaining, starvation=self.starvation), remaining

    def _pays(
        self, draft: Draft, best: RelQuery, ratio: float, urgent: list[Request], waiting: int
    ) -> bool:
        """Whether prompts of `best` now save all that wait more than they cost the more urgent.

        Eq. 15 to 17 of paper 003, with what is left of an answer in place of its limit. ratio: of
        the prompts' tokens that are not cached. waiting: relQueries that wait.
        """
        tails: dict[int, int] = {}
        for request in urgent:
            left = request.max_tokens - len(request.output)
            tails[request.group] = max(left, tails.get(request.group, 0))
        lengths = best.waiting.lengths.cumsum()
        count = max(1, int(lengths.searchsorted(draft.tokens, "right")))
        limit = best.output_limit
        paused = self.cost.prefill_slope * float(lengths[count - 1]) * ratio * len(tails)
        slower = self.cost.decode_slope * count * sum(min(tail, limit) for tail in tails.values())
        sooner = waiting * self.cost.decode_intercept * min(limit, max(tails.values()))
        return paused + slower < sooner


def _admit(draft: Draft, relqueries: Iterable[RelQuery]) -> None:
    for request in chain.from_iterable(each.waiting for each in relqueries):
        if not draft.admit(request):
            return
