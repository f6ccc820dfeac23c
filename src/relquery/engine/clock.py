"""The one clock of an engine, passed as an argument: real time, or a simulation's."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Protocol


class Clock(Protocol):
    """Tells the time in seconds from an arbitrary origin."""

    def now(self) -> float:
        """Seconds, never decreasing."""


class RealClock:
    """The operating system's monotonic clock."""

    def now(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.perf_counter()


class SteppedClock(Clock, Protocol):
    """A clock on which a simulated step takes as long as it is said to."""

    def advance(self, seconds: float) -> None:
        """Let a step of `seconds` (not negative) pass."""


class PacedClock(RealClock):
    """Real time, in which a step lasts until its predicted seconds have passed.

    What the caller did since the last step counts as part of the next: a real machine's steps also
    include the time of its scheduler. Where that alone took longer, nothing is waited for, and the
    delay is not made up for later. since: when the oldest open request
    arrived; idle time before that does not count.
    """

    def __init__(self, since: Callable[[], float] = lambda: -inf) -> None:
        self._since = since
        self._end = self.now()

    def advance(self, seconds: float) -> None:
        """Sleep until the step has taken `seconds`. A signal's handler may end the sleep by an
        exception; the step then ended there."""
        now = self.now()
        due = max(self._end, min(self._since(), now)) + seconds
        if due <= now:
            self._end = now
            return
        try:
            time.sleep(due - now)
        finally:
            # A sleep that lasted too long is made up for by the next step.
            self._end = min(due, self.now())


class VirtualClock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Seconds since the simulation began."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let `seconds` (not negative) pass."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._now += seconds
