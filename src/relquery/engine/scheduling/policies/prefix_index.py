"""Waiting requests, indexed by how much of their prompts is cached; the first is always known.

The rank of a request is its own number, minus what its cached blocks save. It only changes when
the request joins, or when a block is cached or evicted. So requests are kept in a radix trie of
their block keys. All requests whose first missing block is the same have equally much cached and
share one heap, ordered by their own numbers; one more heap ranks these groups. When a block is
cached or evicted, a group moves instead of its members. This costs O(log n), however many requests
begin with the block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeAlias, TypeVar

from relquery.engine.requests.request import Request

Rank = tuple[float, int]
"""The lowest goes first; the number settles ties."""

T = TypeVar("T", bound=Hashable)


class LazyHeap(Generic[T]):
    """A binary heap in which a change leaves the old entry behind, until it comes to the front.

    Every call takes O(log n) on average: a heap with more old entries than new ones is rebuilt.
    """

    __slots__ = ("_heap", "_pushed", "_ranks")

    def __init__(self) -> None:
        self._ranks: dict[T, Rank] = {}
        self._heap: list[tuple[Rank, int, T]] = []
        self._pushed = 0  # breaks ties between equal ranks, because items cannot be compared

    def __len__(self) -> int:
        return len(self._ranks)

    def set(self, item: T, rank: Rank) -> None:
        """Set an item's rank, replacing the old one."""
        if self._ranks.get(item) == rank:
            return
        self._ranks[item] = rank
        self._pushed += 1
        heappush(self._heap, (rank, self._pushed, item))
        self._tidy()

    def discard(self, item: T) -> None:
        """Drop an item, if present."""
        if self._ranks.pop(item, None) is not None:
            self._tidy()

    def rank(self, item: T) -> Rank | None:
        """The rank of an item; None if it is not in the heap."""
        return self._ranks.get(item)

    def first(self) -> tuple[Rank, T] | None:
        """The item with the lowest rank, with its rank; None if the heap is empty."""
        heap, ranks = self._heap, self._ranks
        while heap:
            rank, _, item = heap[0]
            if ranks.get(item) == rank:
                return rank, item
            heappop(heap)
        return None

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._ranks) + 8:
            self._heap = [(rank, at, item) for at, (item, rank) in enumerate(self._ranks.items())]
            self._pushed = len(self._heap)
            heapify(self._heap)


Member: TypeAlias = "Request | _Run"


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks start..stop of the chain `keys`: the common continuation of requests after `parent`.

    cached: end of the cached blocks that count, which are those without a gap from the start of
    the chain. members: the requests whose blocks end with this run, and the runs after it with no
    block that counts, by the rank of their first request. begun: runs after it whose first block
    is in the cache; if this run is completely cached, exactly these are not members.
    """

    parent: _Run | None
    keys: Sequence[bytes]
    start: int
    stop: int
    cached: int
    members: LazyHeap[Member] = field(default_factory=LazyHeap)
    begun: dict[_Run, None] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether its members form a separate group: part of it is cached, or it is the root."""
        return self.cached > self.start or self.parent is None

    @property
    def whole(self) -> bool:
        """Whether runs after it may count."""
        return self.cached == self.stop


class PrefixIndex:
    """The waiting requests, and which of them has the lowest rank.

    holds: whether the cache has the block of a key now. saved: how much a request's rank falls for
    a given number of leading blocks in the cache.
    """

    def __init__(self, holds: Callable[[bytes], bool], saved: Callable[[int], float]) -> None:
        self._holds, self._saved = holds, saved
        self._root = _Run(None, (), 0, 0, 0)
        self._at: dict[Request, _Run] = {}
        self._groups: LazyHeap[_Run] = LazyHeap()
        # Keys to watch: the first of each run, and for a run that counts also its other counting
        # keys and the one after them. Keys are hashes of chains, so each has only one place.
        self._first: dict[bytes, _Run] = {}
        self._inside: dict[bytes, _Run] = {}

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, request: Request) -> bool:
        return request in self._at

    def best(self) -> tuple[Request, int] | None:
        """The request with the lowest rank, and how many of its blocks are cached."""
        group = self._groups.first()
        if group is None:
            return None
        run: _Run = group[1]
        member: Member = run
        while isinstance(member, _Run):
            found = member.members.first()
            assert found is not None, "a run without requests was kept"
            member = found[1]
        return member, run.cached

    def add(self, request: Request, keys: Sequence[bytes], rank: Rank) -> None:
        """Add a request. keys: of its servable blocks. rank: its rank with no block cached."""
        run = self._find(keys)
        self._at[request] = run
        run.members.set(request, rank)
        self._rise(run)
        if not run.counts and self._holds(run.keys[run.start]):
            self._begin(run, True)

    def remove(self, request: Request) -> Rank | None:
        """Remove a request, if present; returns the rank that it was added with."""
        run = self._at.pop(request, None)
        if run is None:
            return None
        rank = run.members.rank(request)
        run.members.discard(request)
        self._rise(run)
        return rank

    def refresh(self, key: bytes) -> None:
        """Update after a block may have entered or left the cache."""
        run = self._first.get(key)
        if run is not None:
            self._begin(run, self._holds(key))
            return
        run = self._inside.get(key)
        if run is None:
            return  # most blocks do not belong to the beginning of a waiting request
        held, ends = self._holds(key), not run.whole and run.keys[run.cached] == key
        if held and ends:
            self._advance(run)
        elif not held and not ends:
            # The last blocks of a prompt are evicted first, so they are looked at first.
            at = run.cached - 1
            while run.keys[at] != key:
                at -= 1
            self._retreat(run, at)

    # ---- the trie

    def _find(self, keys: Sequence[bytes]) -> _Run:
        """The run that ends where the keys do; it is created if missing."""
        run = self._root
        while run.stop < len(keys):
            after = self._first.get(keys[run.stop])
            if after is None:
                return self._grow(run, keys)
            common = _common(after, keys)
            run = after if common == after.stop else self._split(after, common)
        return run

    def _grow(self, parent: _Run, keys: Sequence[bytes]) -> _Run:
        """A new run after another, up to the end of the keys."""
        start = parent.stop
        run = self._first[keys[start]] = _Run(parent, keys, start, len(keys), start)
        return run

    def _split(self, lower: _Run, at: int) -> _Run:
        """Cut a run in two before block `at`; the new run is the upper part."""
        parent, start = lower.parent, lower.start
        assert parent is not None
        counted, cached = lower.counts, lower.cached
        upper = _Run(parent, lower.keys, start, at, min(cached, at))
        self._first[upper.keys[start]] = upper
        self._first[lower.keys[at]] = lower
        lower.parent, lower.start, lower.cached = upper, at, max(cached, at)
        if lower in parent.begun:
            del parent.begun[lower]
            parent.begun[upper] = None
        if self._holds(lower.keys[at]):
            upper.begun[lower] = None
        if counted:
            for key in upper.keys[start + 1 : min(cached + 1, at)]:
                self._inside[key] = upper
            self._inside.pop(lower.keys[at], None)
        if not lower.counts:
            first = lower.members.first()
            assert first is not None, "a run without requests was kept"
            self._groups.discard(lower)
            parent.members.discard(lower)
            upper.members.set(lower, first[0])
        self._rise(upper)
        return upper

    def _rise(self, run: _Run) -> None:
        """Tell the runs above which request is now first in a run, up to the run's group."""
        while not run.counts:
            assert run.parent is not None
            first = run.members.first()
            if first is None:
                self._drop(run)
            elif run.parent.members.rank(run) == first[0]:
                return
            else:
                run.parent.members.set(run, first[0])
            run = run.parent
        self._regroup(run)

    def _regroup(self, run: _Run | None) -> None:
        """Set the rank of a counting run's group. A run that no request needs is dropped."""
        while run is not None:
            first = run.members.first()
            if first is not None:
                (rank, number), _ = first
                self._groups.set(run, (rank - self._saved(run.cached), number))
                return
            self._groups.discard(run)
            if run.parent is None or (run.whole and run.begun):
                return
            self._drop(run)
            run = run.parent

    def _drop(self, run: _Run) -> None:
        assert run.parent is not None
        del self._first[run.keys[run.start]]
        self._forget(run, run.start)
        run.parent.members.discard(run)
        run.parent.begun.pop(run, None)

    # ---- what is cached

    def _begin(self, run: _Run, held: bool) -> None:
        """Note whether the first block of a run is in the cache."""
        parent = run.parent
        assert parent is not None
        if held:
            parent.begun[run] = None
            if parent.whole:
                self._advance(run)
        else:
            if run.cached > run.start:
                self._retreat(run, run.start)
            parent.begun.pop(run, None)

    def _advance(self, run: _Run) -> None:
        """Count further cached blocks of a run from the last counted one, and of later runs."""
        todo = [run]
        while todo:
            run = todo.pop()
            parent, at = run.parent, run.cached
            while at < run.stop and self._holds(run.keys[at]):
                at += 1
                if at < run.stop:
                    self._inside[run.keys[at]] = run
            if at == run.cached:
                continue
            run.cached = at
            assert parent is not None
            parent.members.discard(run)
            self._regroup(parent)
            if run.whole:
                todo += run.begun
            self._regroup(run)

    def _retreat(self, run: _Run, at: int) -> None:
        """Count the cached blocks of a run only up to block `at`, and nothing after it."""
        below = [run]
        for each in below:
            if each.whole:
                below += (after for after in each.begun if after.counts)
        for each in reversed(below):
            self._forget(each, at if each is run else each.start)
            if each.counts:
                self._regroup(each)
            else:
                self._groups.discard(each)
                self._rise(each)

    def _forget(self, run: _Run, at: int) -> None:
        """Stop counting blocks of a run from block `at` on, and stop watching their keys."""
        if run.cached > run.start:
            for key in run.keys[at + 1 : min(run.cached + 1, run.stop)]:
                del self._inside[key]
            run.cached = at


def _common(run: _Run, keys: Sequence[bytes]) -> int:
    """Where a run and the keys diverge, after the first block of the run.

    A key covers everything before it. So if two keys are equal, all keys before them are equal too.
    """
    stop = min(run.stop, len(keys))
    if run.keys[stop - 1] == keys[stop - 1]:
        return stop
    return bisect_left(range(stop), True, run.start + 1, key=lambda i: run.keys[i] != keys[i])
