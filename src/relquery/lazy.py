"""Sequences whose items are built when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Self, TypeVar, overload

from relquery.arrays import Int64s

AT_ONCE = 1024  # items that are built together
T = TypeVar("T")


class LazySequence(Sequence[T]):
    """Items of some places, each built when it is read: a million prompts take a gigabyte.

    Whoever reads these one after the other has few at a time; reading one twice builds it twice.
    build: the items of some places, given as (n,) numbers.
    """

    def __init__(self, places: Int64s, build: Callable[[Int64s], Iterable[T]]) -> None:
        self._places, self._build = places, build

    def part(self, some: Int64s | slice) -> Self:
        """Some of them, by where they stand."""
        copied = copy(self)
        copied._places = self._places[some]
        return copied

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> T | Self:
        if isinstance(index, slice):
            return self.part(index)
        place = range(len(self))[index]
        (built,) = self._build(self._places[place : place + 1])
        return built

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), AT_ONCE):
            yield from self._build(self._places[start : start + AT_ONCE])
