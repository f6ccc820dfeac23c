"""Waiting requests, the one with the lowest job completion time first (paper 004, §6.3)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile

from relquery.engine.cost.job_time import JobTime
from relquery.engine.request.progress import servable
from relquery.engine.request.request import Request
from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import State, Work
from relquery.engine.scheduling.policies.prompts.lazy_heap import Rank
from relquery.engine.scheduling.policies.prompts.prefix_index import PrefixIndex
from relquery.engine.scheduling.policies.prompts.step import Candidate
from relquery.engine.scheduling.reuse import cached_tokens, offloads


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
