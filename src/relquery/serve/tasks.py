"""Work that blocks, in threads beside the event loop, which a client that leaves ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Lock, Timer
from typing import Any, Generic, TypeVar

from relquery.errors import CancelledError
from relquery.serve.admission import queue_full
from relquery.serve.server import RequestScope
from relquery.serve.streaming import ResponseStream

T = TypeVar("T")
Stop = Callable[[], object]
AT_ONCE = 8
"""Tasks that run at the same time."""
MOST_WAITING = 64
"""Tasks that may wait for their turn; more are answered 429."""
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
        if self._reason is None and isinstance(error, Exception):
            return error
        return CancelledError(self._reason or "It was interrupted.")

    def stop(self, reason: str = "The client has closed the connection.") -> None:
        """End the task, and wait until it has ended."""
        self._reason = reason
        while True:
            with self._lock:
                for each in self._stops:
                    each()
            if self.ended.wait(_AGAIN):
                return


class Task(ResponseStream[dict[str, Any]], Generic[T]):
    """One task and the events that it tells. Made by `TaskPool.start`, in the event loop, and read
    there. stopping: for the task's thread, as are `tell` and `done`.
    """

    def __init__(self, cancel: Callable[[Stop], object]) -> None:
        self.stopping = Stopping()
        super().__init__(lambda: cancel(self.stopping.stop))
        self._loop = asyncio.get_running_loop()
        self._value: list[T] = []

    def tell(self, event: dict[str, Any]) -> None:
        """Say something to whoever reads."""
        self._call(lambda: None if self.over else self.put(event))

    def done(self, value: T) -> None:
        """The task has ended, and this is what it gives."""

        def end() -> None:
            self._value.append(value)
            self.finish()

        self._call(end)

    def broke(self, error: BaseException) -> None:
        """The task has ended with an error."""
        self._call(lambda: self.finish(self.stopping.meaning(error)))

    @property
    def value(self) -> T:
        """What the task gave, once the stream has ended."""
        return self._value[0]

    async def result(self, scope: RequestScope) -> T:
        """What the task gives. Raises what it raises, and ClientGoneError if the client leaves,
        which ends the task."""
        await self.all(scope.receive)
        return self.value

    def _call(self, change: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(change)


class TaskPool:
    """Runs tasks, so many at once; others wait for their turn. Used in the event loop."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._threads = ThreadPoolExecutor(at_once, "relquery-task")
        self._stops = ThreadPoolExecutor(at_once, "relquery-stop")
        self._open, self._most = 0, at_once + most_waiting
        self._lock = Lock()

    def start(self, work: Callable[[Task[T]], T], seconds: float | None = None) -> Task[T]:
        """Run a task in a thread. seconds: after which it is ended with an error.

        Raises HttpError if too many are open.
        """
        with self._lock:
            if self._open >= self._most:
                raise queue_full(f"{self._open} tasks of such requests are open already.")
            self._open += 1
        task = Task[T](self._end)
        self._threads.submit(self._run, task, work, seconds)
        return task

    def close(self) -> None:
        """Take no more tasks. Does not wait for those that run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._stops.shutdown(wait=False)

    def _end(self, stop: Stop) -> None:
        with suppress(RuntimeError):  # the server has stopped
            self._stops.submit(stop)

    def _run(self, task: Task[T], work: Callable[[Task[T]], T], seconds: float | None) -> None:
        try:
            with _limited(task.stopping, seconds):
                task.stopping.check()
                value = work(task)
        except BaseException as error:  # an interrupted DuckDB raises KeyboardInterrupt
            task.broke(error)
        else:
            task.done(value)
        finally:
            task.stopping.ended.set()
            with self._lock:
                self._open -= 1


def start(scope: RequestScope, work: Callable[[Task[T]], T]) -> Task[T]:
    """Run a task for a request. Raises HttpError if too many are open, or the server stops."""
    server = scope.server
    server.admission.check_open()
    server.admission.check_room()
    return server.kept(TaskPool).start(work, server.config.sql_seconds)


@contextmanager
def _limited(stopping: Stopping, seconds: float | None) -> Iterator[None]:
    """A block that is stopped after some seconds."""
    if seconds is None:
        yield
        return
    timer = Timer(seconds, stopping.stop, (f"It took longer than {seconds:g} seconds.",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
