"""RelServe: priorities follow the remaining work, and steps weigh who waits (paper 003); and static
priority, fixed when a relQuery arrives, by its tokens (eq. 6-7)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain, islice

from relquery.engine.cost import LinearCost
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.policies.priority import Estimate, Fairness, Priorities
from relquery.engine.scheduling.policies.remaining import Remaining
from relquery.engine.scheduling.policies.steps import begin, decode, prefill
from relquery.engine.scheduling.reuse import Draft


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
        priorities: Priorities[Estimate] = memo or self.begin(state)
        priorities.update(state)
        running = priorities.sort(state.running)
        draft = begin(Draft(state), priorities.overdue(state), running, priorities.is_urgent)
        waiting = (relquery.waiting for relquery in priorities.candidates(state, draft))
        prefill(draft, state, chain.from_iterable(waiting))
        if not draft.work or priorities.should_decode(draft):
            draft = Draft(state)
            decode(draft, running)
        return draft.plan(), priorities

    def begin(self, state: State) -> Priorities[Estimate]:
        """The priorities of relQueries, none of which is known yet."""
        estimate = TokenCount.of(self.cost, self.fairness)
        remaining = Remaining(self.cost)
        return Priorities(estimate, state.limits, self.fairness, fixed=True, remaining=remaining)


@dataclass(frozen=True, slots=True)
class RelServe:
    """The policy; call it as `Policy` says.

    Priorities follow the remaining work (the Dynamic Priority Updater, 4.2). When a running
    relQuery has computed all its prompts and another waits, the predicted change of latencies
    decides what goes first (the Adaptive Batch Arranger, 4.3).
    """

    cost: LinearCost
    """Predicts the durations that it weighs."""
    fairness: Fairness = field(default_factory=Fairness)
    """Applied in addition to priorities."""
    seed: int = 0
    """See Remaining."""
    remaining: Remaining | None = None
    """Another estimate of the remaining work."""

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Compute prompts of the most urgent relQuery, or decode all running requests."""
        priorities: Priorities[Estimate] = memo or self.begin(state)
        priorities.update(state)
        running = priorities.sort(state.running)
        draft = begin(Draft(state), priorities.overdue(state), running, priorities.is_urgent)
        must = bool(draft.work)
        # A step has prompts of only one relQuery, so each change from one to the next is weighed.
        candidates = islice(priorities.candidates(state, draft), 1)
        prefill(draft, state, chain.from_iterable(each.waiting for each in candidates))
        goes_first = must or not running or self._goes_first(draft, priorities, state)
        if not draft.work or not goes_first or priorities.should_decode(draft):
            draft = Draft(state)
            decode(draft, running)
        return draft.plan(), priorities

    def begin(self, state: State) -> Priorities[Estimate]:
        """The priorities of relQueries, none of which is known yet."""
        remaining = self.remaining or Remaining(self.cost, seed=self.seed)
        estimate: Estimate = remaining
        return Priorities(estimate, state.limits, self.fairness, remaining=remaining)

    def _goes_first(self, draft: Draft, priorities: Priorities[Estimate], state: State) -> bool:
        """Whether the drafted prompts go before the decodes of running requests."""
        if not draft.work:
            return True
        running = {request.group for request in state.running}
        least = min(priorities[number] for number in running)
        if least >= min(priorities[work.request.group] for work in draft.work):
            return True  # a more urgent relQuery came, or its own prompts are not all computed
        relqueries = [state.relqueries[number] for number in running]
        return self._change(draft, relqueries, priorities.count, state) < 0

    def _change(
        self, draft: Draft, running: Collection[RelQuery], waiting: int, state: State
    ) -> float:
        """Seconds by which all latencies together grow if the prompts go first (eq. 15 to 17)."""
        count = len(draft.work)
        limit = max(state.relqueries[work.request.group].output_limit for work in draft.work)
        paused = self.cost.seconds(sum(work.tokens for work in draft.work), 0) * len(running)
        common = sum(min(each.output_limit, limit) for each in running)
        slower = self.cost.decode_slope * count * common
        longest = max(each.output_limit for each in running)
        sooner = waiting * self.cost.decode_intercept * min(limit, longest)
        return paused + slower - sooner
