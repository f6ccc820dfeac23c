"""Shortest remaining job first, by single prompts (paper 004, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count, takewhile
from typing import NamedTuple

from relquery.engine.cost import LinearCost
from relquery.engine.requests.request import Request, servable
from relquery.engine.scheduling.plan import Memo, Plan, State, Work
from relquery.engine.scheduling.policies.steps import decode
from relquery.engine.scheduling.reuse import Draft, cached_tokens


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


Rank = tuple[float, int]
"""The lowest goes first; the number settles ties."""


@dataclass(slots=True)
class _Entry:
    """A request of the index."""

    keys: Sequence[bytes]
    rank: Rank
    """With no block cached."""
    cached: int = 0
    """Leading blocks that count as cached, at least as many as are."""
    now: Rank = (0.0, 0)
    """With as many cached."""


class PrefixIndex:
    """The waiting requests, and which of them has the lowest rank: its own number, minus what its
    leading blocks in the cache save.

    The rank of a request falls as soon as the first block that it lacks is cached. It rises only
    when the request comes to the front: there its blocks are looked up again, as they may have been
    evicted. So an eviction, which may concern all requests, costs nothing by itself.

    holds: whether the cache has the block of a key now. saved: how much a request's rank falls for
    a given number of leading blocks in the cache.
    """

    def __init__(self, holds: Callable[[bytes], bool], saved: Callable[[int], float]) -> None:
        self._holds, self._saved = holds, saved
        self._entries: dict[Request, _Entry] = {}
        self._lacking: dict[bytes, dict[Request, None]] = {}  # by the first block that they lack
        self._heap: list[tuple[Rank, int, Request]] = []  # with old entries, until they are first
        self._pushed = count()  # requests cannot be compared

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request: Request) -> bool:
        return request in self._entries

    def best(self) -> tuple[Request, int] | None:
        """The request with the lowest rank, and how many of its blocks are cached."""
        while self._heap:
            rank, _, request = self._heap[0]
            entry = self._entries.get(request)
            if entry is None or entry.now != rank:
                heappop(self._heap)
                continue
            cached = self._count(entry, 0)
            if cached == entry.cached:
                return request, cached
            self._place(request, entry, cached)
        return None

    def add(self, request: Request, keys: Sequence[bytes], rank: Rank) -> None:
        """Add a request. keys: of its servable blocks. rank: its rank with no block cached."""
        entry = self._entries[request] = _Entry(keys, rank)
        self._place(request, entry, self._count(entry, 0))

    def remove(self, request: Request) -> Rank | None:
        """Remove a request, if present; returns the rank that it was added with."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return None
        self._forget_lack(request, entry)
        return entry.rank

    def refresh(self, key: bytes) -> None:
        """Update after a block may have entered the cache."""
        if key in self._lacking and self._holds(key):
            for request in list(self._lacking[key]):
                entry = self._entries[request]
                self._place(request, entry, self._count(entry, entry.cached))

    def _count(self, entry: _Entry, start: int) -> int:
        """Leading blocks that are cached, if the first ones are."""
        keys = entry.keys
        while start < len(keys) and self._holds(keys[start]):
            start += 1
        return start

    def _place(self, request: Request, entry: _Entry, cached: int) -> None:
        """Rank a request with so many cached blocks."""
        self._forget_lack(request, entry)
        (own, number), entry.cached = entry.rank, cached
        entry.now = own - self._saved(cached), number
        if cached < len(entry.keys):
            self._lacking.setdefault(entry.keys[cached], {})[request] = None
        heappush(self._heap, (entry.now, next(self._pushed), request))
        if len(self._heap) > 2 * len(self._entries) + 8:
            self._heap = [
                (each.now, next(self._pushed), one) for one, each in self._entries.items()
            ]
            heapify(self._heap)

    def _forget_lack(self, request: Request, entry: _Entry) -> None:
        """Watch for the block no longer that a request lacks."""
        key = entry.keys[entry.cached] if entry.cached < len(entry.keys) else None
        lacking = None if key is None else self._lacking.get(key)
        if key is not None and lacking is not None:
            lacking.pop(request, None)
            if not lacking:
                del self._lacking[key]


class Backlog:
    """The memo of policies that order requests by JCT: uncached tokens times seconds per token, the
    proxy of paper 004, §6.3.

    slope: seconds per token. aging: seconds of JCT that a second of waiting makes up for (λ).
    calibrated: update the JCT whenever blocks enter or leave the cache; otherwise it stays as it
    was when the request joined the queue.

    The score of Algorithm 1 is jct - λ (now - arrival). λ now is the same for all requests, so the
    order depends only on jct + λ arrival. Only the part of a prompt before its first span is
    followed; for the rest, what was cached when the request joined counts. Answer tokens still to
    be decoded count as tokens of the prompt.
    """

    def __init__(self, state: State, slope: float, aging: float, calibrated: bool) -> None:
        self._slope, self._aging = slope, aging
        self._calibrated = calibrated and state.limits.prefix_caching
        self._pool, self._size = state.pool, state.limits.block_size
        self._index = PrefixIndex(self._holds, lambda blocks: slope * blocks * self._size)
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
        jct = self._slope * (request.length + left - beside)
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
        return key in self._expected or self._pool.lookup(key) is not None


@dataclass(frozen=True, slots=True)
class Srjf:
    """The policy; call it as `Policy` says.

    cost: converts tokens to seconds, and decides whether joining a step pays off.
    """

    cost: LinearCost
    aging: float = 0.0
    """Seconds of JCT that a second of waiting makes up for, the paper's λ; in the authors' code it
    is in tokens per second, aging / cost.prefill_slope."""
    calibrated: bool = True
    """See Backlog."""
    batch: bool = True
    """Let further prompts join a step if that pays off."""

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Advance running requests, then add the prompt with the lowest score."""
        backlog: Backlog | None = memo
        if backlog is None:
            backlog = Backlog(state, self.cost.prefill_slope, self.aging, self.calibrated)
        else:
            backlog.update(state)
        draft, cost = Draft(state), self.cost if self.batch else None
        advance_and_add(draft, state, backlog.candidates(draft, state), cost)
        return draft.plan(), backlog
