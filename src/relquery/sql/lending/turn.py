"""Turns of threads at one connection, in the order in which they were asked for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Place = threading.Event
"""A place in the line. It is set when the turn has come."""


@dataclass(eq=False, slots=True)
class Turn:
    """A lock that goes to those who ask for it in their order, and whose line can be left."""

    line: deque[Place] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self) -> Place:
        """A place at the end of the line; to be left, whether its turn has come or not."""
        place = Place()
        with self.lock:
            self.line.append(place)
            self.line[0].set()
        return place

    def leave(self, place: Place) -> None:
        """Give the turn to the next, or stop waiting for it, which wakes who waits at the place."""
        with self.lock:
            self.line.remove(place)
            if self.line:
                self.line[0].set()
        place.set()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A block that has the turn."""
        place = self.ask()
        try:
            place.wait()
            yield
        finally:
            self.leave(place)
