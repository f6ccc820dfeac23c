"""The one clock of an engine, passed as an argument: real time, or a simulation's."""

from __future__ import annotations

import time
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
