"""Policies that order single prompts: shortest remaining job first (paper 004, Algorithm 1), and
first in, first out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, takewhile
from typing import NamedTuple

from relquery.engine.cost import JobTime, LinearCost, uncached_tokens
from relquery.engine.requests.request import Request, servable
from relquery.engine.scheduling.plan import Memo, Plan, State, Work
from relquery.engine.scheduling.policies.prefix_index import PrefixIndex, Rank
from relquery.engine.scheduling.policies.steps import decode
from relquery.engine.scheduling.reuse import Draft, cached_tokens, offloads


class Candidate(NamedTuple):
    """A waiting request, and how many of its tokens have to be computed."""

    request: Request
    uncached: int


def advance_and_add(
    draft: Draft, state: State, candidates: Iterable[Candidate], cost: LinearCost | None
) -> None:
    """Plan all running requests and the first candidate; with a cost, more if that pays off.

    The first is cut if it exceeds what the engine computes at once. The others are added whole or
    not at all, and none overtakes a candidate that waits for room. Requests that decode after their
    prompts join one another as long as they fit: a step can decode for many as well as for one.
    """
    decode(draft, state.running)
    if draft.preempt:
        return
    others, scoring = len(state.waiting), False
    for added, candidate in enumerate(candidates):
        request = candidate.request
        others, scoring = others - 1, scoring or request.prefill_only
        if added and scoring and not (cost and pays(candidate, len(draft.work), others, cost)):
            return
        if not draft.admit(request, whole=added > 0) or (scoring and cost is None):
            return


def pays(candidate: Candidate, members: int, others: int, cost: LinearCost) -> bool:
    """Whether it is better for a prompt to join a step than to have the next step to itself.

    Separately, a step of t(A) is followed by one of t(B); together they take t(A) + t(B) - f,
    where f is the fixed time saved by one step less. If B joins, each member of A waits
    t(B) - f longer, and B and all other waiting requests wait f less. So it pays off if
    f (1 + others) > (t(B) - f) members. (Paper 004, §6.1, never batches: there f is zero.)
    """
    alone = cost.seconds(candidate.uncached, 0, candidate.request.length - candidate.uncached)
    saved = cost.prefill_intercept
    return saved * (1 + others) > (alone - saved) * members


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


class Backlog:
    """The memo of policies that order requests by JCT.

    job_time: computes the JCT. aging: seconds of JCT that a second of waiting makes up for (λ).
    calibrated: update the JCT whenever blocks enter or leave the cache; otherwise it stays as it
    was when the request joined the queue.

    The score of Algorithm 1 is jct - λ (now - arrival). λ now is the same for all requests, so the
    order depends only on jct + λ arrival. Only the part of a prompt before its first span is
    followed; for the rest, what was cached when the request joined counts. Answer tokens still to
    be decoded count as tokens of the prompt. Blocks in host memory count as cached, because they
    are copied.
    """

    def __init__(self, state: State, job_time: JobTime, aging: float, calibrated: bool) -> None:
        self._job_time, self._aging = job_time, aging
        self._calibrated = calibrated and state.limits.prefix_caching
        self._pool, self._host, self._limits = state.pool, state.host, state.limits
        self._size = state.limits.block_size
        self._index = PrefixIndex(self._holds, lambda blocks: job_time.saved(blocks * self._size))
        self._beside: dict[Request, int] = {}  # cached tokens that the index does not follow
        self._expected: dict[bytes, None] = {}  # blocks that the step being planned fills
        self._taken: dict[Request, Rank] = {}  # requests that the step takes
        self._numbers = count()
        for request in state.waiting:
            self._add(request, state)

    def __len__(self) -> int:
        return len(self._index)

    def update(self, state: State) -> None:
        """Process changes; an earlier plan counts only as far as it was executed."""
        moved = dict.fromkeys([*self._taken, *state.moved])
        stale = [*self._expected, *state.cache_changes]
        taken, self._taken, self._expected = self._taken, {}, {}
        for request in moved:
            if request not in state.waiting:
                self._remove(request)
        if self._calibrated:
            for key in stale:
                self._index.refresh(key)
        for request in moved:
            if request in state.waiting and request not in self._index:
                if request in taken:  # and not computed
                    self._index.add(request, self._keys(request), taken[request])
                else:
                    self._add(request, state)

    def candidates(self, draft: Draft, state: State) -> Iterator[Candidate]:
        """Requests in order of their scores. Every earlier one must be in the draft.

        What they leave in the cache counts as cached.
        """
        while (best := self._index.best()) is not None:
            request, blocks = best
            cached = blocks * self._size + self._beside.get(request, 0)
            if not self._calibrated:
                cached = sum(cached_tokens(request, state.limits, state.pool))
            yield Candidate(request, request.length - cached)
            self._take(draft.work[-1], blocks)

    def _take(self, work: Work, cached_blocks: int) -> None:
        request = work.request
        rank = self._index.remove(request)
        assert rank is not None
        self._taken[request] = rank
        kept = None if work.kept is None else work.kept[0]
        if offloads(request, self._limits, self._host):  # the host stores what is not kept
            kept = None
        for key in self._keys(request)[cached_blocks:kept]:
            if not self._holds(key):
                self._expected[key] = None
                self._index.refresh(key)

    def _add(self, request: Request, state: State) -> None:
        keys, beside = self._keys(request), 0
        if not self._calibrated or len(request.pieces) > 1:
            followed = sum(1 for _ in takewhile(self._holds, keys))
            cached = sum(cached_tokens(request, state.limits, state.pool))
            beside = self._beside[request] = cached - followed * self._size
        left = 0 if request.prefill_only else request.max_tokens - len(request.output)
        jct = self._job_time(request.length + left, beside)
        rank = jct + self._aging * request.arrival, next(self._numbers)
        self._index.add(request, keys, rank)

    def _remove(self, request: Request) -> None:
        self._index.remove(request)
        self._beside.pop(request, None)

    def _keys(self, request: Request) -> tuple[bytes, ...]:
        """Keys of the whole blocks that the index follows."""
        if not self._calibrated:
            return ()
        blocks = min(servable(request, 0, self._size), request.size(0) // self._size)
        if blocks:
            request.key(0, blocks - 1, self._size)
        return tuple(request.pieces[0].keys[:blocks])

    def _holds(self, key: bytes) -> bool:
        return (
            key in self._expected
            or self._pool.lookup(key) is not None
            or self._host.lookup(key) is not None
        )


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
