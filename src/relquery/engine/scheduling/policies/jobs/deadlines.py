"""RelQueries that would miss their deadlines if they waited longer."""

from __future__ import annotations

from relquery.engine.request.relquery import RelQuery
from relquery.engine.scheduling.plan import State
from relquery.engine.scheduling.policies.jobs.ranking import Ranking
from relquery.engine.scheduling.policies.jobs.remaining import Remaining

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
        found: set[int] = set()
        if self._has_drifted(state):
            found.update(self._dates)
            for number in found:
                self.take_in(state.relqueries[number], state)
        for number in self._calm.take_until(state.now):
            latest, self.pressed[number] = self._dates[number]
            self._running_out.set(number, latest)
            found.add(number)
        for number in self._running_out.take_until(state.now):
            del self.pressed[number]
            found.add(number)
        return found

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
