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
"""Tokens to compute, and what age makes up for; the lowest goes first, and of equal ones the one
with the lowest number."""


class _Run:
    """Blocks that the same waiting requests begin with, after those of the run above.

    start: blocks before it. ranks: a heap of the requests that end here, by their own ranks, and
    of the runs below, by their `lowest`; with old entries. lowest: at most the lowest own rank of
    its requests, None if it has none. count: of the requests. cached: leading blocks that were
    cached when last looked at. entry: its rank in the order of runs. shut: runs below that have
    cached blocks, and come into the order once more of this one's are cached.
    """

    __slots__ = ("above", "cached", "count", "entry", "keys", "lowest", "ranks", "shut", "start")

    def __init__(self, above: _Run | None, keys: Sequence[bytes]) -> None:
        self.above, self.keys = above, keys
        self.start: int = 0 if above is None else above.start + len(above.keys)
        self.ranks: list[tuple[Rank, int, Request | _Run]] = []
        self.lowest: Rank | None = None
        self.count = self.cached = 0
        self.entry: Rank | None = None
        self.shut: set[_Run] = set()


class PrefixIndex:
    """The waiting requests, and which of them has the lowest rank: its own, minus the tokens of its
    leading blocks in the cache.

    A tree, in which a run of blocks is what several requests begin with, or the rest of one. A
    run's rank is the lowest own one below it, minus the tokens up to the end of what is cached of
    the run. For a request of which more is cached a run below has a lower rank, so the run with the
    lowest rank of all has the request with the lowest. A block that enters the cache changes the
    rank of one run, however many requests begin with it. One that leaves is noticed when a run
    comes first: there its blocks, and those above it, are looked up again.

    holds: whether the cache has the block of a key now. size: tokens of a block.
    """

    def __init__(self, holds: Callable[[bytes], bool], size: int) -> None:
        self._holds, self._size = holds, size
        self._requests: dict[Request, tuple[Rank, _Run]] = {}  # own rank, and the last run
        self._root = _Run(None, ())
        self._runs: dict[bytes, _Run] = {}  # by their first block, and the first they lack
        self._order: list[tuple[Rank, int, _Run]] = []  # a heap, with old entries
        self._pushed = count()  # runs cannot be compared

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: Request) -> bool:
        return request in self._requests

    def best(self) -> tuple[Request, int] | None:
        """The request with the lowest rank, and how many of its blocks are cached."""
        while self._order:
            rank, _, run = heappop(self._order)
            if rank != run.entry:
                continue
            run.entry = None
            if self._is_open(run):
                self._push(run)
                if run.entry == rank and (first := self._first(run)) is not None:
                    return first[1], run.start + run.cached
        return None

    def add(self, request: Request, keys: Sequence[bytes], rank: Rank) -> None:
        """Add a request. keys: of its servable blocks. rank: its rank with no block cached."""
        above, offset = self._root, 0
        while offset < len(keys):
            run = self._runs.get(keys[offset])
            if run is None:
                run = self._runs[keys[offset]] = _Run(above, keys[offset:])
                self._look_up(run)
            elif keys[offset : offset + len(run.keys)] != run.keys:
                run = self._cut(run, _common(run.keys, keys[offset:]))
            above, offset = run, offset + len(run.keys)
        self._requests[request] = rank, above
        for run in _upwards(above):
            run.count += 1
        self._enter(above, rank, request)

    def remove(self, request: Request) -> Rank | None:
        """Remove a request, if present; returns the rank that it was added with."""
        rank, last = self._requests.pop(request, (None, None))
        for run in _upwards(last):
            run.count -= 1
            if not run.count:
                run.ranks, run.lowest, run.entry = [], None, None
                if run is not self._root:
                    self._note(run, 0)
                    del self._runs[run.keys[0]]
        return rank

    def refresh(self, key: bytes) -> None:
        """Update after a block may have entered the cache."""
        run = self._runs.get(key)
        if run is not None:
            self._look_up(run)

    def _is_open(self, run: _Run) -> bool:
        """Whether all blocks before a run are cached. If not, it waits for those of a run above."""
        for above in _upwards(run.above):
            self._look_up(above)
            if above.cached < len(above.keys):
                above.shut.add(run)
                return False
        self._look_up(run)
        return True

    def _look_up(self, run: _Run) -> None:
        """See how many of a run's leading blocks are cached now."""
        self._note(run, sum(1 for _ in takewhile(self._holds, run.keys)))

    def _note(self, run: _Run, cached: int) -> None:
        """Note how many of them are."""
        before, run.cached = run.cached, cached
        if before == cached:
            return
        if 0 < before < len(run.keys):
            del self._runs[run.keys[before]]
        if 0 < cached < len(run.keys):
            self._runs[run.keys[cached]] = run
        if cached > before:
            opened, run.shut = run.shut, set()
            for each in (run, *opened):
                self._push(each)

    def _cut(self, run: _Run, blocks: int) -> _Run:
        """Divide a run in two; returns the upper one, of so many blocks."""
        self._note(run, 0)
        upper = _Run(run.above, run.keys[:blocks])
        upper.count, upper.lowest = run.count, run.lowest
        run.above, run.start, run.keys = upper, run.start + blocks, run.keys[blocks:]
        for above, below in ((upper.above, upper), (upper, run)):
            if above is not None and below.lowest is not None:
                heappush(above.ranks, (below.lowest, next(self._pushed), below))
        for each in (upper, run):
            self._runs[each.keys[0]] = each
            self._look_up(each)
        return upper

    def _enter(self, last: _Run, rank: Rank, request: Request) -> None:
        """Put a request into the heap of its last run, and each run of which it has the lowest own
        rank into the heap of the run above."""
        entry: Request | _Run = request
        for run in _upwards(last):
            heappush(run.ranks, (rank, next(self._pushed), entry))
            if len(run.ranks) > 2 * run.count + 8:
                run.ranks = [each for each in run.ranks if self._counts(run, each)]
                heapify(run.ranks)
            if run.lowest is not None and run.lowest <= rank:
                return
            run.lowest, entry = rank, run
            self._push(run)

    def _counts(self, run: _Run, each: tuple[Rank, int, Request | _Run]) -> bool:
        """Whether an entry of a run's heap is not an old one."""
        rank, _, entry = each
        if isinstance(entry, _Run):
            return entry.above is run and entry.lowest is rank
        known = self._requests.get(entry)
        return known is not None and known[0] is rank

    def _first(self, run: _Run) -> tuple[Rank, Request] | None:
        """The request of a run with the lowest own rank, and that rank.

        The runs below that the heaps have by too low a rank, as its request has left, are put
        right. So each costs a step at most, however many have left.
        """
        path: list[_Run] = [run]
        best, right = None, None
        while path:
            top = path[-1]
            while top.ranks and not self._counts(top, top.ranks[0]):
                heappop(top.ranks)
            rank, _, entry = top.ranks[0] if top.ranks else (None, 0, None)
            if isinstance(entry, _Run) and entry is not right:
                path.append(entry)
                continue
            if not isinstance(entry, _Run):
                best = None if rank is None or entry is None else (rank, entry)
            if top.lowest is not rank:
                top.lowest = rank
                if rank is not None and top.above is not None:
                    heappush(top.above.ranks, (rank, next(self._pushed), top))
            right = path.pop()
        return best

    def _rank(self, run: _Run) -> Rank | None:
        """A run's rank, if it is open; None if it has none of its own."""
        if not (run.cached or run is self._root) or (first := self._first(run)) is None:
            return None
        own, number = first[0]
        return own - self._size * (run.start + run.cached), number

    def _push(self, run: _Run) -> None:
        """Put a run where it belongs, if it is open."""
        rank = self._rank(run)
        if rank is None or rank == run.entry:
            return
        run.entry = rank
        heappush(self._order, (rank, next(self._pushed), run))
        if len(self._order) > 2 * len(self._runs) + 8:
            self._order = [each for each in self._order if each[0] == each[2].entry]
            heapify(self._order)


def _upwards(run: _Run | None) -> Iterator[_Run]:
    """A run, and those above it."""
    while run is not None:
        yield run
        run = run.above


def _common(keys: Sequence[bytes], others: Sequence[bytes]) -> int:
    """How many are the same at the beginning of both."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(keys, others, strict=False))
    )


class Backlog:
    """The memo of policies that order requests by JCT: the tokens to be computed, the proxy of
    paper 004, section 6.3. Answer tokens still to be decoded count as tokens of the prompt.

    weight: tokens that a second of waiting makes up for.

    The score of Algorithm 1 is jct - λ (now - arrival). λ now is the same for all requests, so the
    order depends only on jct + λ arrival. Only the part of a prompt before its first span is
    followed; for the rest, what was cached when the request joined counts.
    """

    def __init__(self, state: State, weight: float) -> None:
        self._weight, self._limits, self._pool = weight, state.limits, state.pool
        self._index = PrefixIndex(self._holds, state.limits.block_size)
        self._beside: dict[Request, int] = {}  # cached tokens that the index does not follow
        self._expected: set[bytes] = set()  # blocks that the step being planned fills
        self._taken: dict[Request, Rank] = {}  # requests that the step takes
        self._numbers = count()
        for request in state.waiting:
            self._add(request)

    def __len__(self) -> int:
        return len(self._index)

    def update(self, state: State) -> None:
        """Process changes; an earlier plan counts only as far as it was executed."""
        taken, self._taken, self._expected = self._taken, {}, set()
        moved = dict.fromkeys([*taken, *state.moved])
        for request in moved:
            if request not in state.waiting:
                self._index.remove(request)
                self._beside.pop(request, None)
        for key in state.cache_changes:
            self._index.refresh(key)
        for request in moved:
            if request in state.waiting and request not in self._index:
                self._add(request, taken.get(request))  # a rank: it was not computed

    def candidates(self, draft: Draft) -> Iterator[Candidate]:
        """Requests in order of their scores. Every earlier one must be in the draft.

        What they leave in the cache counts as cached.
        """
        while (best := self._index.best()) is not None:
            request, blocks = best
            cached = blocks * self._limits.block_size + self._beside.get(request, 0)
            yield Candidate(request, request.length - cached)
            self._take(draft.work[-1])

    def tokens(self, request: Request) -> int:
        """Tokens to compute with nothing cached."""
        left = 0 if request.prefill_only else request.max_tokens - len(request.output)
        return request.length + left

    def keys(self, request: Request) -> Sequence[bytes]:
        """Keys of the whole blocks that the index follows."""
        size = self._limits.block_size
        blocks = min(servable(request, 0, size), request.size(0) // size)
        return request.keys(0, blocks if self._limits.prefix_caching else 0, size)

    def beside(self, request: Request) -> int:
        """Cached tokens that the index does not follow."""
        if len(request.pieces) == 1:
            return 0
        followed = sum(1 for _ in takewhile(self._holds, self.keys(request)))
        cached = sum(cached_tokens(request, self._limits, self._pool))
        return cached - followed * self._limits.block_size

    def _take(self, work: Work) -> None:
        rank = self._index.remove(work.request)
        assert rank is not None
        self._taken[work.request] = rank
        kept = None if work.kept is None else work.kept[0]
        keys = self.keys(work.request)[:kept]
        self._expected.update(keys)
        for key in keys:
            self._index.refresh(key)

    def _add(self, request: Request, rank: Rank | None = None) -> None:
        """rank: the one that it had before; None for a new request."""
        if rank is None:
            beside = self.beside(request)
            if beside:
                self._beside[request] = beside
            tokens = self.tokens(request) - beside
            rank = tokens + self._weight * request.arrival, next(self._numbers)
        self._index.add(request, self.keys(request), rank)

    def _holds(self, key: bytes) -> bool:
        return key in self._expected or self._pool.lookup(key) is not None


_LEAST = 1e-9
"""Seconds per token that are assumed at least, so that those of waiting can be divided by them."""


@dataclass(frozen=True, slots=True)
class Srjf:
    """The policy; call it as `Policy` says.

    cost: converts tokens to seconds, and decides whether joining a step pays off.
    """

    cost: LinearCost
    aging: float = 0.0
    """Seconds of JCT that a second of waiting makes up for, the paper's λ; in the authors' code it
    is in tokens per second, aging / cost.prefill_slope."""
    batch: bool = True
    """Let further prompts join a step if that pays off."""

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]:
        """Advance running requests, then add the prompt with the lowest score."""
        backlog: Backlog | None = memo
        if backlog is None:
            backlog = self.begin(state)
        else:
            backlog.update(state)
        draft, cost = Draft(state), self.cost if self.batch else None
        advance_and_add(draft, state, backlog.candidates(draft), cost)
        return draft.plan(), backlog

    def begin(self, state: State) -> Backlog:
        """The waiting requests, none of which is known yet."""
        return Backlog(state, self.weight)

    @property
    def weight(self) -> float:
        """Tokens that a second of waiting makes up for."""
        return self.aging / max(self.cost.prefill_slope, _LEAST)
