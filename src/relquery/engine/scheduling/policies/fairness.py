"""RelQueries that may not wait longer: deadlines, the longest waits, and what tenants have used.

The longest waits are kept as short as first come, first served would have made them. There a
relQuery waits for the work that it finds, and until its own last answer is drawn. How much it finds
does not depend on the order in which a busy machine serves, so that wait is known, although nobody
is served in this order: the work of all that came until then, less what was done. As that work is
done in turn, what it was estimated to be gives way to what it took. Each relQuery is promised the
99th percentile of these waits. Time is counted in work done, so what the machine takes for it need
not be known. Estimates of what is left are corrected by what those of ended relQueries were too
high or too low by in the mean.

A relQuery is *tight* if all the work that came before it, with its own, fills what is left of its
promise. Then nothing that came later may go first; among what came before, the order is free.

Tenants are simultaneous clients. Each has a counter of the tokens that were computed for it,
divided by its weight, as in the virtual token counter of Sheng et al. ("Fairness in Serving Large
Language Models", 2024). Unlike in that paper, the lowest counter does not always go first, because
then everybody's relQueries would run at once and end late. A tenant steps back only when it is
ahead of another waiting tenant by more than a slack. Between tenants that are not ahead, priorities
decide.

The counter of a tenant without requests is kept while it is ahead of who has some: else a name
would lose its debts by a pause.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from relquery.engine.requests.relquery import RelQuery
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.remaining import Remaining

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


SAFETY = 2.0
"""A relQuery is pressed once so many times its remaining seconds are left until its deadline."""
DRIFT = 0.1
"""Relative change of what answers and steps usually take after which all are estimated again."""


class Deadlines:
    """Keeps track of which relQueries are pressed: they must not wait longer, and can be in time.

    pressed: their deadlines, by number. remaining: estimates how long one takes by itself, with
    answers of the usual length. As long as no answer has been seen, a relQuery is pressed as if
    answers had their maximum length, and given up as if they had one token.
    """

    def __init__(self, remaining: Remaining) -> None:
        self.pressed: dict[int, float] = {}
        self._remaining = remaining
        self._usual: tuple[float | None, float] = None, 1.0
        self._calm = Ranking()  # by when they are pressed
        self._running_out = Ranking()  # the pressed ones, by when they can no longer be in time
        self._dates: dict[int, tuple[float, float]] = {}  # this moment, and the deadline

    def __bool__(self) -> bool:
        """Whether any relQuery that was taken in has a deadline."""
        return bool(self._dates)

    def take_in(self, relquery: RelQuery, state: State) -> None:
        """Estimate an open relQuery again. `update` then says whether it is pressed."""
        if relquery.deadline is None:
            return
        self.forget(relquery.id)
        usual = state.length_ratio
        seconds = self._remaining.alone(relquery, state, 0.0 if usual is None else usual)
        self._dates[relquery.id] = relquery.deadline - seconds, relquery.deadline
        if usual is None:
            seconds = self._remaining.alone(relquery, state, 1.0)
        self._calm.set(relquery.id, relquery.deadline - SAFETY * seconds)

    def update(self, state: State) -> set[int]:
        """Process that time has passed; returns the relQueries that may have begun or ceased to be
        pressed."""
        promised: set[int] = set()
        if self._has_drifted(state):
            promised.update(self._dates)
            for number in promised:
                self.take_in(state.relqueries[number], state)
        for number in self._calm.take_until(state.now):
            latest, self.pressed[number] = self._dates[number]
            self._running_out.set(number, latest)
            promised.add(number)
        for number in self._running_out.take_until(state.now):
            del self.pressed[number]
            promised.add(number)
        return promised

    def forget(self, number: int) -> None:
        """A relQuery has ended."""
        self.pressed.pop(number, None)
        self._dates.pop(number, None)
        self._calm.discard(number)
        self._running_out.discard(number)

    def _has_drifted(self, state: State) -> bool:
        """Whether answers or steps take much more or less than when all were estimated."""
        (before, pace), now = self._usual, state.length_ratio
        same = before == now or (
            before is not None and now is not None and abs(now - before) <= DRIFT * before
        )
        if same and abs(state.pace - pace) <= DRIFT * pace:
            return False
        self._usual = now, state.pace
        return bool(self._dates)


QUANTILE = 0.99
"""Of the waits under first come, first served; what is promised."""
MARGIN = 0.03
"""Share of the promise that is kept back: requests that run already are not interrupted."""
SEEN = 1_000
"""Arrivals that it is taken of, and more while the oldest of them is open."""


class Tail:
    """The relQueries that must end before others begin.

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
            filled = bias * np.cumsum([query.work for query in each])
            filled += [query.last for query in each]
            left = np.array([query.since for query in each]) - self._clock
            left += (1 - MARGIN) * self._factor * self._wait
            tight = np.flatnonzero(filled >= left)
            if len(tight):
                turns = np.array([query.turn for query in each])
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
        work = np.cumsum([query.done + bias * query.work for query in self._seen])
        waits = self._before + work - [query.since - query.longest for query in self._seen]
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


OUTPUT = 2.0
"""How many prompt tokens one answer token counts as."""
_FEW = 64
"""Counters that are kept before any is looked at again."""


class Tenants:
    """Counters of service.

    weights: a tenant with weight 2 gets twice as much as one with weight 1; the default is 1.
    slack: tokens, divided by the weight, that a tenant may be ahead before it steps back.
    others_share: whether all tenants without a weight of their own have one counter.
    """

    def __init__(
        self, weights: Mapping[str, float], slack: float, *, others_share: bool = False
    ) -> None:
        self._weights, self._slack, self._others_share = weights, slack, others_share
        self._room = _FEW
        self._counters: dict[str, float] = {}
        self._open: Counter[str] = Counter()
        self._seen: dict[int, tuple[str, int, int]] = {}

    def of(self, relquery: RelQuery) -> str:
        """Whose share a relQuery uses."""
        is_other = self._others_share and relquery.tenant not in self._weights
        return "" if is_other else relquery.tenant

    def take_in(self, relquery: RelQuery) -> None:
        """Count what was computed for a relQuery since the last time.

        At the first time nothing has been, or only before it was forgotten, when it was counted.
        """
        tenant = self.of(relquery)
        if relquery.id not in self._seen:
            self._join(tenant)
        done = relquery.computed_prompts, relquery.drawn_tokens
        _, prompts, outputs = self._seen.get(relquery.id, (tenant, *done))
        self._seen[relquery.id] = tenant, *done
        tokens = (done[0] - prompts) + OUTPUT * (done[1] - outputs)
        self._counters[tenant] += tokens / self._weights.get(tenant, 1.0)

    def forget(self, number: int) -> None:
        """A relQuery has ended."""
        tenant = self._seen.pop(number)[0]
        self._open[tenant] -= 1
        if not self._open[tenant]:
            del self._open[tenant]
            if len(self._counters) > self._room:
                self._free()

    def ahead(self, waiting: Collection[str]) -> frozenset[str]:
        """All tenants that are too far ahead of the least served of these tenants."""
        if len(self._open) < 2 or not waiting:
            return frozenset()
        bound = min(self._counters[tenant] for tenant in waiting) + self._slack
        return frozenset(tenant for tenant in self._open if self._counters[tenant] > bound)

    def _free(self) -> None:
        """Drop the counters of absent tenants that would be raised as soon as they come again."""
        least = min((self._counters[tenant] for tenant in self._open), default=inf)
        for tenant in self._counters.keys() - self._open.keys():
            if self._counters[tenant] <= least:
                del self._counters[tenant]
        self._room = _FEW + 2 * len(self._counters)

    def _join(self, tenant: str) -> None:
        """Add a tenant. It gets no credit for the time it was absent."""
        if not self._open[tenant]:
            others = [self._counters[other] for other, count in self._open.items() if count]
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), min(others, default=0.0))
        self._open[tenant] += 1
