"""The thread of an engine that serves many: it alone tokenises and runs the engine's loop.

Others leave commands in its inbox, which it takes in between steps, and get answers in their sinks.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import RLock, Thread, current_thread
from traceback import clear_frames
from typing import Any, TypeVar

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.host import CLOSED, Sink, Submission, heard
from relquery.errors import ConfigError

T = TypeVar("T")
_LONGEST = 0.1  # seconds in which commands are taken before the next step


def nothing() -> None:
    """Does nothing."""


class Worker:
    """Serves jobs with an engine until it is told to stop; then closes it. See EngineHost.

    engine: used on the thread alone. clock: its clock. closed: whether it takes no commands any
    more. turned: called on the thread after each turn, when sinks have what the step gave.
    """

    def __init__(self, engine: EmbeddedBackend, turned: Callable[[], None] = nothing) -> None:
        self.clock, self.closed = engine.clock, False
        self.engine, self._batches, self._turned = engine, engine.batches, turned
        self._inbox: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._stopping = False
        # A signal's handler may close an engine in the midst of a call that its thread makes.
        self._lock = RLock()
        self._thread = Thread(target=self._run, name="relquery-engine", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Jobs that are open."""
        return len(self._batches.jobs)

    def post(self, command: Callable[[], object]) -> bool:
        """Have the thread run a command before its next step; False if it takes none any more."""
        with self._lock:
            if not self.closed:
                self._inbox.put(command)
            return not self.closed

    def submit(self, submission: Submission, sink: Sink) -> bool:
        arrival = self.clock.now()

        def begin() -> None:
            try:
                self.engine.submit(submission, sink, arrival)
            except BaseException as error:  # what breaks on the way breaks this job alone
                sink.end(None, error)

        return self.post(begin)

    def cancel(self, sink: Sink) -> bool:
        return self.call(lambda: self.engine.cancel(sink), False)

    def ask(self, question: str, *given: Any) -> Any:
        closed = object()
        found = self.call(lambda: self.engine.ask(question, *given), closed)
        if found is closed:
            raise ConfigError(CLOSED)
        return found

    def call(self, question: Callable[[], T], otherwise: T) -> T:
        """What a function gives on the thread, or `otherwise` where it takes no commands.

        Raises what the function raises.
        """
        reply: SimpleQueue[tuple[T, BaseException | None]] = SimpleQueue()

        def command() -> None:
            try:
                reply.put((question(), None))
            except BaseException as error:
                reply.put((otherwise, error))

        if not self.post(command):
            return otherwise
        value, error = self.hear(reply, None)
        if error is not None:
            raise error
        return value

    def hear(self, bell: SimpleQueue[T], until: float | None) -> T:
        return heard(bell, until, self.clock, self._thread.is_alive)

    def stop(self) -> None:
        """Have the thread cancel what is open and end. Waits for the step that runs."""
        with self._lock:
            self.closed = True
            self._inbox.put(self._quit)
        # The last reference to an engine may be dropped on its own thread.
        if current_thread() is not self._thread:
            self._thread.join()

    # What follows runs on the thread.

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except BaseException as error:
                self._fail(error)
        self.engine.close()  # which cancels what is open
        self._turned()

    def _turn(self) -> None:
        """Take in commands, waiting for them if no job is open; then run a step."""
        while not self._batches.jobs and not self._stopping:
            self._inbox.get()()
            self._turned()
        # Those that are there, and no more: who asks again and again would hold up the steps. So
        # would many that take long, such as schemas that are new.
        until = self.clock.now() + _LONGEST
        for _ in range(self._inbox.qsize()):
            self._inbox.get()()
            if self.clock.now() > until:
                break
        if self._batches.jobs and not self._stopping:
            self._batches.step()
        self._turned()

    def _quit(self) -> None:
        self._stopping = True

    def _fail(self, error: BaseException) -> None:
        """End all open jobs with an error; those that come later are served."""
        # The error lives as long as a job that somebody keeps; what its frames hold, all that the
        # step had in memory, would live as long.
        clear_frames(error.__traceback__)
        try:
            self._batches.fail(error)
        finally:
            self._turned()
