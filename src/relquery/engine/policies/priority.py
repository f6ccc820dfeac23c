"""Priorities of relQueries, kept from step to step: only what changed is estimated again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from relquery.engine.policies.ranking import Ranking
from relquery.engine.relquery import RelQuery
from relquery.engine.schedule import State


class Estimate(Protocol):
    """A relQuery's priority: a number, the less the more urgent."""

    def __call__(self, relquery: RelQuery, state: State) -> float: ...


class Priorities:
    """The memo of policies that go by priority.

    estimate: gives a relQuery's priority. fixed: keep the one of its arrival; else it is estimated
    again whenever one of its requests has been worked on. As long as all of them wait, the last
    one is kept (paper 003, eq. 12). starvation: unit waiting time (eq. 13), in seconds for each
    request that a relQuery came with, from which on its priority is 0; None for never.
    """

    def __init__(
        self, estimate: Estimate, *, fixed: bool = False, starvation: float | None = None
    ) -> None:
        self._estimate, self._fixed, self._starvation = estimate, fixed, starvation
        self._priorities: dict[int, float] = {}
        self._sizes: dict[int, int] = {}
        self._waiting = Ranking()  # those with requests that wait
        self._due = Ranking()  # those not begun, by when they starve
        self._starved: set[int] = set()

    def __getitem__(self, relquery: int) -> float:
        return 0.0 if relquery in self._starved else self._priorities[relquery]

    def update(self, state: State) -> None:
        """Take in what changed."""
        for number in state.changed:
            relquery = state.relqueries.get(number)
            if relquery is None:
                self._forget(number)
            else:
                self._take_in(relquery, state)
        for number in self._due.take_until(state.now):
            self._starved.add(number)
            self._rank(state.relqueries[number])

    def waiting(self, state: State) -> Iterator[RelQuery]:
        """The relQueries that have requests that wait, the most urgent first."""
        return (state.relqueries[number] for number in self._waiting)

    @property
    def count(self) -> int:
        """How many relQueries have requests that wait."""
        return len(self._waiting)

    def _take_in(self, relquery: RelQuery, state: State) -> None:
        number = relquery.id
        grown = self._sizes.get(number) != relquery.size
        if grown or not (self._fixed or not relquery.running):
            self._priorities[number] = self._estimate(relquery, state)
            self._sizes[number] = relquery.size
        self._rank(relquery)
        if self._starvation is not None and number not in self._starved:
            if relquery.started is None:
                self._due.set(number, relquery.arrival + self._starvation * relquery.size)
            else:
                self._due.discard(number)

    def _rank(self, relquery: RelQuery) -> None:
        if len(relquery.waiting):
            self._waiting.set(relquery.id, self[relquery.id], relquery.arrival)
        else:
            self._waiting.discard(relquery.id)

    def _forget(self, number: int) -> None:
        self._priorities.pop(number, None)
        self._sizes.pop(number, None)
        self._starved.discard(number)
        self._waiting.discard(number)
        self._due.discard(number)
