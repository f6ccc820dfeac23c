"""The index of what waits finds who is first, whatever comes into the cache and goes from it."""

from __future__ import annotations

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.engine.request.request import Request
from relquery.engine.scheduling.policies.prompts.lazy_heap import LazyHeap
from relquery.engine.scheduling.policies.prompts.prefix_index import PrefixIndex
from tests.engine.harness import numbered


class Scanned:
    """What the index says, found by looking at every request; and the index, which must agree."""

    def __init__(self) -> None:
        self.cache: set[bytes] = set()
        self.added = 0
        self.waiting: dict[Request, tuple[tuple[bytes, ...], float]] = {}
        self.index = PrefixIndex(lambda key: key in self.cache, lambda blocks: 3.0 * blocks)

    def add(self, path: str, rank: float = 0.0) -> Request:
        """path: letters that stand for blocks; a block's key names all before it too."""
        keys = tuple(path[: end + 1].encode() for end in range(len(path)))
        self.added += 1
        request = Request(self.added, numbered(1), 1)
        self.waiting[request] = keys, rank
        self.index.add(request, keys, (rank, request.id))
        self.check()
        return request

    def remove(self, request: Request) -> None:
        del self.waiting[request]
        self.index.remove(request)
        self.check()

    def change(self, *paths: str) -> None:
        """Blocks that were cached are no longer, and those that were not are; all at once."""
        keys = [path.encode() for path in paths]
        self.cache ^= set(keys)
        for key in keys:
            self.index.refresh(key)
        self.check()

    def cached(self, request: Request) -> int:
        keys, _ = self.waiting[request]
        return sum(1 for _ in takewhile(self.cache.__contains__, keys))

    def rank(self, request: Request) -> float:
        return self.waiting[request][1] - 3.0 * self.cached(request)

    def check(self) -> None:
        best = self.index.best()
        assert len(self.index) == len(self.waiting)
        if best is None:
            assert not self.waiting
            return
        request, blocks = best
        # Of equal ones the first; a dict keeps them in the order in which they came.
        assert request is min(self.waiting, key=self.rank)
        assert blocks == self.cached(request)


PATH = st.text("abc", max_size=7)


@given(data=st.data())
def test_it_agrees_with_a_scan_of_all_requests(data: st.DataObject) -> None:
    scanned = Scanned()
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["add", "add", "remove", "evict", "publish", "change"]))
        waiting = list(scanned.waiting)
        if step == "add":
            scanned.add(data.draw(PATH), data.draw(st.integers(0, 20)))
        elif step == "remove" and waiting:
            scanned.remove(data.draw(st.sampled_from(waiting)))
        elif step == "publish":  # as the engine does: all that a prompt lacks
            path = data.draw(PATH)
            prefixes = [path[: end + 1] for end in range(len(path))]
            scanned.change(*(each for each in prefixes if each.encode() not in scanned.cache))
        elif step == "evict" and scanned.cache:
            keys = st.sampled_from(sorted(scanned.cache))
            gone = data.draw(st.lists(keys, unique=True, max_size=6))
            scanned.change(*(key.decode() for key in gone))
        elif step == "change":
            scanned.change(*data.draw(st.lists(PATH.filter(bool), unique=True, max_size=4)))
    for request in list(scanned.waiting):
        scanned.remove(request)
    assert_empty(scanned.index)


def assert_empty(index: PrefixIndex) -> None:
    """Nothing of what has left is kept."""
    assert len(index) == 0
    assert not index._first
    assert not index._inside
    assert not len(index._groups)
    assert not len(index._root.members)
    assert not index._root.begun


def test_a_block_that_many_requests_begin_with_moves_them_all_at_once() -> None:
    scanned = Scanned()
    asked: list[bytes] = []
    scanned.index = PrefixIndex(
        lambda key: asked.append(key) or key in scanned.cache,  # type: ignore[func-returns-value]
        lambda blocks: 3.0 * blocks,
    )
    for number in range(200):
        scanned.add("shared" + chr(1000 + number), 50.0 + number)
    alone = scanned.add("x", 45.0)
    asked.clear()
    scanned.change(*("shared"[: end + 1] for end in range(6)))
    assert len(asked) < 30
    best = scanned.index.best()
    assert best is not None
    assert best[0] is not alone
    assert best[1] == 6


def test_a_gap_ends_what_counts_until_it_is_filled() -> None:
    scanned = Scanned()
    long = scanned.add("abcdef", 10.0)
    scanned.add("x", 9.0)
    scanned.change("a", "ab", "abcd", "abcde")
    assert scanned.index.best() == (long, 2)
    scanned.change("abc")
    assert scanned.index.best() == (long, 5)
    scanned.change("ab")
    assert scanned.index.best() == (long, 1)


def test_who_is_not_there_may_be_removed() -> None:
    index = PrefixIndex(lambda key: False, float)
    index.remove(Request(0, numbered(1), 1))
    assert index.best() is None


@pytest.mark.long
def test_a_thousand_prompts_that_each_continue_the_one_before_are_no_trouble() -> None:
    scanned = Scanned()
    path = "".join(chr(1000 + n) for n in range(1_100))
    keys = tuple(n.to_bytes(4) for n in range(len(path)))
    requests = [Request(n, numbered(1), 1) for n in range(1_100)]
    for n, request in enumerate(requests):
        scanned.index.add(request, keys[: n + 1], (4.0 * n, n))
    scanned.cache.update(keys)
    for key in reversed(keys):
        scanned.index.refresh(key)
    assert scanned.index.best() == (requests[0], 1)
    scanned.cache.clear()
    for key in keys:
        scanned.index.refresh(key)
    assert scanned.index.best() == (requests[0], 0)
    for request in requests:
        scanned.index.remove(request)
    assert_empty(scanned.index)


# ---- the heap


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "discard"]), st.integers(0, 5), st.integers(0, 9)),
        max_size=60,
    )
)
def test_a_lazy_heap_knows_the_first_of_ranks_that_change(
    steps: list[tuple[str, int, int]],
) -> None:
    heap: LazyHeap[int] = LazyHeap()
    ranks: dict[int, tuple[float, int]] = {}
    for step, item, rank in steps:
        if step == "set":
            ranks[item] = (float(rank), item)
            heap.set(item, ranks[item])
        else:
            ranks.pop(item, None)
            heap.discard(item)
        assert len(heap) == len(ranks)
        assert heap.rank(item) == ranks.get(item)
        first = min(((rank, each) for each, rank in ranks.items()), default=None)
        assert heap.first() == first


def test_a_lazy_heap_keeps_few_old_entries() -> None:
    heap: LazyHeap[int] = LazyHeap()
    for rank in range(1_000):
        heap.set(0, (float(rank), 0))
        heap.set(1, (float(-rank), 1))
    assert len(heap._heap) < 20
    assert heap.first() == ((-999.0, 1), 1)
