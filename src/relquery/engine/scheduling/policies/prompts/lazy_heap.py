"""Things by a rank that may change, of which only the first is ever asked for."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Rank = tuple[float, int]
"""The least goes first; the number settles ties."""

T = TypeVar("T", bound=Hashable)


class LazyHeap(Generic[T]):
    """A binary heap in which a change leaves the old entry behind, until it comes to the front.

    Every call takes O(log n) on average: a heap with more old entries than new ones is made anew.
    """

    __slots__ = ("_heap", "_pushed", "_ranks")

    def __init__(self) -> None:
        self._ranks: dict[T, Rank] = {}
        self._heap: list[tuple[Rank, int, T]] = []
        self._pushed = 0  # tells entries of equal rank apart, as things cannot be compared

    def __len__(self) -> int:
        return len(self._ranks)

    def set(self, item: T, rank: Rank) -> None:
        """Give a thing its rank, in place of the one that it had."""
        if self._ranks.get(item) == rank:
            return
        self._ranks[item] = rank
        self._pushed += 1
        heappush(self._heap, (rank, self._pushed, item))
        self._tidy()

    def discard(self, item: T) -> None:
        """Drop a thing, if it is there."""
        if self._ranks.pop(item, None) is not None:
            self._tidy()

    def rank(self, item: T) -> Rank | None:
        """The rank of a thing; None if it is not there."""
        return self._ranks.get(item)

    def first(self) -> tuple[Rank, T] | None:
        """The thing of the least rank, with its rank; None if there is none."""
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
