"""Keeps the longest waits as short as first come, first served would have made them.

There a relQuery waits for the work that it finds, and until its own last answer is drawn. How much
it finds does not depend on the order in which a busy machine serves, so that wait is known,
although nobody is served in this order: the work of all that came until then, less what was done.
As that work is done in turn, what it was estimated to be gives way to what it took. Each relQuery
is promised the 99th percentile of these waits. Time is counted in work done, so what the machine
takes for it need not be known. Estimates of what is left are corrected by what those of ended
relQueries were too high or too low by in the mean.

A relQuery is *tight* if all the work that came before it, with its own, fills what is left of its
promise. Then nothing that came later may go first; among what came before, the order is free.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

QUANTILE = 0.99
"""Of the waits under first come, first served; what is promised."""
MARGIN = 0.03
"""Share of the promise that is kept back: requests that run already are not interrupted."""
SEEN = 1_000
"""Arrivals that it is taken of, and more while the oldest of them is open."""


class Tail:
    """Which relQueries must end before others begin.

    factor: promised waits, as multiples of those of first come, first served. turns: by number, for
    relQueries that have to go first: the lower goes before the higher, and both before the rest.
    """

    def __init__(self, factor: float) -> None:
        self.turns: dict[int, float] = {}
        self._factor = factor
        self._open: dict[int, _Arrival] = {}  # in the order of their arrivals
        self._seen: deque[_Arrival] = deque()  # the last arrivals, also those that have ended
        self._before = 0.0  # what was done of earlier ones
        self._wait: float | None = 0.0  # under first come, first served; None if it has changed
        self._clock = 0.0
        self._estimated = self._took = 0.0  # of relQueries that have ended
        self._numbers = 0

    def take_in(self, number: int, work: float, last: float, done: float, size: int) -> None:
        """Record the estimated remaining work of an open relQuery, and the work done.

        last: the work that is done of all while its longest answer is drawn. size: requests that
        have arrived.
        """
        known = self._open.get(number)
        if known is None:
            self._numbers += 1
            # One that comes again, after all its answers, is a new arrival: that work is counted.
            known = self._open[number] = _Arrival(float(self._numbers), self._clock, done)
            self._see(known)
        self.note(number, done)
        known.work, known.last = work, last
        if size != known.size:
            known.size, known.estimated, known.longest = size, work + known.done, last
            self._wait = None

    def note(self, number: int, done: float) -> None:
        """Record how much of a relQuery's work is done; that much less remains."""
        known = self._open[number]
        more = done - known.before - known.done
        self._clock += more
        known.done, known.work = known.done + more, max(0.0, known.work - more)

    def update(self) -> set[int]:
        """Process that work has been done; returns the relQueries whose turns have changed."""
        before, self.turns = self.turns, {}
        if len(self._open) > 1:
            each = self._open.values()
            bias = self._took / self._estimated if self._estimated else 1.0
            if self._wait is None:
                self._wait = self._first_come(bias)
            filled = bias * np.cumsum([one.work for one in each])
            filled += [one.last for one in each]
            left = np.array([one.since for one in each]) - self._clock
            left += (1 - MARGIN) * self._factor * self._wait
            tight = np.flatnonzero(filled >= left)
            if len(tight):
                turns = np.array([one.turn for one in each])
                ahead = int(tight[-1]) + 1
                first = tight[np.searchsorted(tight, np.arange(ahead))]
                self.turns = dict(zip(self._open, turns[first].tolist(), strict=False))
        return {number for number, _ in before.items() ^ self.turns.items()} & self._open.keys()

    def forget(self, number: int) -> None:
        """A relQuery has ended."""
        known = self._open.pop(number)
        known.work, known.has_ended = 0.0, True
        self._estimated += known.estimated
        self._took += known.done
        self._wait = None
        self.turns.pop(number, None)

    def _see(self, arrival: _Arrival) -> None:
        self._seen.append(arrival)
        while len(self._seen) > SEEN and self._seen[0].has_ended:
            self._before += self._seen.popleft().done

    def _first_come(self, bias: float) -> float:
        """The quantile of the waits under first come, first served."""
        work = np.cumsum([one.done + bias * one.work for one in self._seen])
        waits = self._before + work - [one.since - one.longest for one in self._seen]
        return float(np.quantile(waits, QUANTILE))


@dataclass(slots=True)
class _Arrival:
    """turn: its place among all arrivals. since: the work that was done when it arrived. before:
    what was done of it earlier, when its first rows had come and were answered. work: what it
    still is. last: what is done of all while its longest answer is drawn; longest: this, when
    the last of its requests came. done: what of it is done. size: requests that have arrived.
    estimated: what it was in all, by what was known then."""

    turn: float
    since: float
    before: float
    work: float = 0.0
    last: float = 0.0
    longest: float = 0.0
    done: float = 0.0
    size: int = 0
    estimated: float = 0.0
    has_ended: bool = False
