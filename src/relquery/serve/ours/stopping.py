"""Ends a task that runs in another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock

from relquery.errors import CancelledError

Stop = Callable[[], object]

_AGAIN = 0.2  # seconds: what is interrupted between two statements of DuckDB starts the next


class Stopping:
    """What ends a task. Its thread says what there is to stop. ended: set when the task ends."""

    def __init__(self) -> None:
        self.ended = Event()
        self._reason: str | None = None
        self._stops: list[Stop] = []
        self._lock = Lock()

    @contextmanager
    def stops(self, *stops: Stop) -> Iterator[None]:
        """A block that these end. Raises CancelledError if the task has been stopped."""
        with self._lock:
            self.check()
            self._stops += stops
        try:
            yield
        finally:
            with self._lock:  # so that none is called after the block
                for each in stops:
                    self._stops.remove(each)

    def check(self) -> None:
        """Raises CancelledError if the task has been stopped."""
        if self._reason is not None:
            raise CancelledError(self._reason)

    def meaning(self, error: BaseException) -> BaseException:
        """What an error of the task means: of one that was stopped, only that."""
        if self._reason is not None:
            return CancelledError(self._reason)
        if isinstance(error, Exception):
            return error
        return CancelledError("It was interrupted.")

    def stop(self, reason: str = "The client has closed the connection.") -> None:
        """End the task, and wait until it has ended."""
        self._reason = reason
        while True:
            with self._lock:
                for each in self._stops:
                    each()
            if self.ended.wait(_AGAIN):
                return
