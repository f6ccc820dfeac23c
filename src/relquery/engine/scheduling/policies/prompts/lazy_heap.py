"""Items ordered by a rank that may change; only the first is ever needed."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

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
