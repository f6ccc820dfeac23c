"""Numbers in the order of a key that may change, the lowest first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

Key = tuple[float, ...]


class Ranking:
    """Numbers in ascending order of their keys; equal keys in the order of the numbers.

    Setting and dropping take a binary search and a memory move. Iterating costs only what is read.
    """

    def __init__(self) -> None:
        self._keys: dict[int, Key] = {}
        self._sorted: list[tuple[Key, int]] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[int]:
        return (number for _, number in self._sorted)

    def set(self, number: int, *key: float) -> None:
        """Set a number's key, replacing the old one."""
        if self._keys.get(number) == key:
            return
        self.discard(number)
        self._keys[number] = key
        insort(self._sorted, (key, number))

    def discard(self, number: int) -> None:
        """Drop a number, if present."""
        key = self._keys.pop(number, None)
        if key is not None:
            del self._sorted[bisect_left(self._sorted, (key, number))]

    def take_until(self, bound: float) -> list[int]:
        """Drop and return the numbers whose key begins with `bound` or less, in ascending order."""
        cut = bisect_left(self._sorted, ((bound,), 0))
        while cut < len(self._sorted) and self._sorted[cut][0][0] <= bound:
            cut += 1
        taken = [number for _, number in self._sorted[:cut]]
        del self._sorted[:cut]
        for number in taken:
            del self._keys[number]
        return taken
