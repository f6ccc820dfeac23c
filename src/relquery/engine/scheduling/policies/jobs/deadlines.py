"""RelQueries that would miss their deadlines if they waited longer."""

from __future__ import annotations

from relquery.engine.request.relquery import RelQuery
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.jobs.ranking import Ranking
from relquery.engine.scheduling.policies.jobs.remaining import Remaining

SAFETY = 2.0
"""A relQuery is pressed once so many times its remaining seconds are left until its deadline."""


class Deadlines:
    """Keeps track of which relQueries are pressed: they must not wait longer, and can be in time.

    pressed: their deadlines, by number. remaining: estimates how long one takes by itself. As with
    priorities, it is asked again only when a relQuery has changed.
    """

    def __init__(self, remaining: Remaining) -> None:
        self.pressed: dict[int, float] = {}
        self._remaining = remaining
        self._calm = Ranking()  # by when they are pressed
        self._running_out = Ranking()  # the pressed ones, by when they can no longer be in time
        self._dates: dict[int, tuple[float, float]] = {}  # this moment, and the deadline

    def take_in(self, relquery: RelQuery, state: State) -> None:
        """Estimate an open relQuery again. `update` then says whether it is pressed."""
        if relquery.deadline is None:
            return
        self.forget(relquery.id)
        seconds = self._remaining.alone(relquery, state)
        self._dates[relquery.id] = relquery.deadline - seconds, relquery.deadline
        self._calm.set(relquery.id, relquery.deadline - SAFETY * seconds)

    def update(self, now: float) -> list[int]:
        """Process that time has passed; returns the relQueries that are pressed now, or no longer,
        and were not or were before."""
        begun, over = self._calm.take_until(now), []
        for number in begun:
            latest, self.pressed[number] = self._dates[number]
            self._running_out.set(number, latest)
        while len(self._running_out) and self._latest() < now:
            number = next(iter(self._running_out))
            self._running_out.discard(number)
            del self.pressed[number]
            over.append(number)
        return [*begun, *over]

    def forget(self, number: int) -> None:
        """A relQuery has ended."""
        self.pressed.pop(number, None)
        self._dates.pop(number, None)
        self._calm.discard(number)
        self._running_out.discard(number)

    def _latest(self) -> float:
        return self._dates[next(iter(self._running_out))][0]
