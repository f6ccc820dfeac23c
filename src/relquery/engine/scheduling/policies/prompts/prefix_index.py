"""Requests that wait, by what the cache has of their prompts: who is first is known at any time.

The rank of a request is a number of its own, less what its cached blocks save. Both change only
when it joins, and when a block comes or goes. So requests are kept in a radix trie of their block
keys. All those that lack the same first block have equally much cached and share one heap, by their
own numbers alone; one more heap ranks these groups. A block that comes or goes moves a group, not
its members: it costs O(log n), however many requests begin with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from relquery.engine.request.request import Request
from relquery.engine.scheduling.policies.prompts.lazy_heap import LazyHeap, Rank

Member: TypeAlias = "Request | _Run"


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks start..stop of the chain `keys`, with which the same requests go on after `parent`.

    cached: block at which the cached ones that count end: those without a gap from the first of
    the chain on. members: the requests whose blocks end with this run, and the runs after it of
    which no block counts, by the rank of their first request. begun: runs after it whose first
    block is in the cache; if this run is cached whole, just these are not among the members.
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
        """Whether its members are a group of their own: some of it is cached, or it is the root."""
        return self.cached > self.start or self.parent is None

    @property
    def whole(self) -> bool:
        """Whether runs after it may count."""
        return self.cached == self.stop


class PrefixIndex:
    """The requests that wait, and which of them has the least rank.

    holds: whether the cache has the block of a key now. saved: what the rank of a request falls by
    for so many leading blocks in the cache.
    """

    def __init__(self, holds: Callable[[bytes], bool], saved: Callable[[int], float]) -> None:
        self._holds, self._saved = holds, saved
        self._root = _Run(None, (), 0, 0, 0)
        self._at: dict[Request, _Run] = {}
        self._groups: LazyHeap[_Run] = LazyHeap()
        # Keys whose coming or going matters: the first of each run, and of a run that counts the
        # others that do and the one after them. Keys are hashes of chains, so each has one place.
        self._first: dict[bytes, _Run] = {}
        self._inside: dict[bytes, _Run] = {}

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, request: Request) -> bool:
        return request in self._at

    def best(self) -> tuple[Request, int] | None:
        """The request of the least rank, and how many of its blocks are cached."""
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
        """Let a request wait. keys: of its blocks that may be served. rank: with none cached."""
        run = self._find(keys)
        self._at[request] = run
        run.members.set(request, rank)
        self._rise(run)
        if not run.counts and self._holds(run.keys[run.start]):
            self._begin(run, True)

    def remove(self, request: Request) -> Rank | None:
        """Let a request leave, if it is there; gives the rank that it was added with."""
        run = self._at.pop(request, None)
        if run is None:
            return None
        rank = run.members.rank(request)
        run.members.discard(request)
        self._rise(run)
        return rank

    def refresh(self, key: bytes) -> None:
        """A block may have come into the cache or gone from it."""
        run = self._first.get(key)
        if run is not None:
            self._begin(run, self._holds(key))
            return
        run = self._inside.get(key)
        if run is None:
            return  # most blocks are none that a request which waits begins with
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
        """The run that ends where the keys do, made if there is none."""
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
        """Tell those above who is first in a run now, up to the group that it belongs to."""
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
        """Give the group of a run that counts its rank. One that no request needs is dropped."""
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
        """The first block of a run is in the cache, or is not."""
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
        """Count what is cached of a run from where it ended, and of those after it."""
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
        """Let what is cached of a run count up to block `at` only, and nothing after it."""
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
        """Take back what counts of a run from block `at` on, and the keys that were watched."""
        if run.cached > run.start:
            for key in run.keys[at + 1 : min(run.cached + 1, run.stop)]:
                del self._inside[key]
            run.cached = at


def _common(run: _Run, keys: Sequence[bytes]) -> int:
    """Where a run and the keys part, after the first block of the run.

    A key names all before it, so that where two keys are equal, those before them are.
    """
    stop = min(run.stop, len(keys))
    if run.keys[stop - 1] == keys[stop - 1]:
        return stop
    return bisect_left(range(stop), True, run.start + 1, key=lambda i: run.keys[i] != keys[i])
