"""Keeps the longest waits as short as first come, first served would have made them.

There a relQuery waits for the work that it finds. How much it finds does not depend on the order in
which a busy machine serves, so that wait is known at each arrival, although nobody is served in
this order. Each relQuery is promised the 99th percentile of these waits. Time is counted in work
done, so what the machine takes for it need not be known. It is what was done, not what estimates of
the rest have fallen by: they move with every row that comes. And estimates are corrected by what
those of ended relQueries were too high or too low by in the mean.

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
"""Arrivals that it is taken of."""


class Tail:
    """Which relQueries must end before others begin.

    factor: promised waits, as multiples of those of first come, first served. turns: by number, for
    relQueries that have to go first: the lower goes before the higher, and both before the rest.
    """

    def __init__(self, factor: float) -> None:
        self.turns: dict[int, float] = {}
        self._factor = factor
        self._open: dict[int, _Open] = {}  # in the order of their arrivals
        self._seen: deque[_Open] = deque(maxlen=SEEN)
        self._wait: float | None = None  # promised; None after arrivals
        self._clock = 0.0
        self._estimated = self._took = 0.0  # of relQueries that have ended
        self._numbers = 0

    def take_in(self, number: int, work: float, done: float, size: int) -> None:
        """Record the estimated remaining work of an open relQuery, and the work done.

        size: requests that have arrived.
        """
        known = self._open.get(number)
        if known is None:
            self._numbers += 1
            ahead = sum(each.work for each in self._open.values())
            known = self._open[number] = _Open(float(self._numbers), self._clock, work, ahead)
            self._seen.append(known)
        self.note(number, done)
        known.work = work
        if size != known.size:
            known.size, known.estimated = size, work + done
            self._wait = None

    def note(self, number: int, done: float) -> None:
        """Record how much of a relQuery's work is done; that much less remains."""
        known = self._open[number]
        more = done - known.done
        self._clock += more
        known.done, known.work = done, max(0.0, known.work - more)

    def update(self) -> set[int]:
        """Process that work has been done; returns the relQueries whose turns have changed."""
        before, self.turns = self.turns, {}
        if len(self._open) > 1:
            if self._wait is None:
                waits = [one.ahead + one.estimated for one in self._seen]
                self._wait = float(np.quantile(waits, QUANTILE))
            each = self._open.values()
            bias = self._took / self._estimated if self._estimated else 1.0
            filled = bias * np.cumsum([one.work for one in each])
            promised = (1 - MARGIN) * self._factor * self._wait * bias
            left = np.array([one.since for one in each]) + promised
            left -= self._clock
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
        self._estimated += known.estimated
        self._took += known.done
        self.turns.pop(number, None)


@dataclass(slots=True)
class _Open:
    """turn: its place among all arrivals. since: the work that was done when it arrived. work: what
    it still is. ahead: what the others were when it arrived. done: what of it is done. size:
    requests that have arrived. estimated: what it was in all, by what was known when the last of
    them came."""

    turn: float
    since: float
    work: float
    ahead: float
    done: float = 0.0
    size: int = 0
    estimated: float = 0.0
