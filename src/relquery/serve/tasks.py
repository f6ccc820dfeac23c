"""Work that blocks, in threads beside the event loop, which a client that leaves ends."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore, Event, Lock, Timer
from typing import Any, Generic, TypeVar

from relquery.errors import CancelledError
from relquery.serve.admission import queue_full
from relquery.serve.server import RequestScope
from relquery.serve.streaming import ResponseStream

T = TypeVar("T")
Stop = Callable[[], object]
AT_ONCE = 8
"""Tasks that run at the same time, of all tenants by their weights; one of each may always run."""
MOST_WAITING = 64
"""Tasks of a tenant that may wait for their turn; more are answered 429."""
MOST_TOLD = 8
"""Parts that a task may tell before they are read; then it waits."""
_MOST_THREADS = 1_000
_LOOK = 0.2  # seconds until a task that waits for its reader looks whether it was stopped
_AGAIN = 0.2  # seconds: what is interrupted between two statements of DuckDB starts the next


class Stopping:
    """What ends a task. Its thread says what there is to stop. begun: whether the task has begun.
    ended: set when it ends."""

    def __init__(self) -> None:
        self.begun, self.ended = False, Event()
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
        """End the task, and wait until it has ended; one that has not begun ends as it begins."""
        self._reason = reason
        while self.begun:
            with self._lock:
                for each in self._stops:
                    each()
            if self.ended.wait(_AGAIN):
                return


class Task(ResponseStream[Any], Generic[T]):
    """One task and the parts that it tells. Made by `TaskPool.start`, in the event loop, and read
    there. stopping: for the task's thread, as are `tell` and `done`.
    """

    def __init__(self, cancel: Callable[[Stop], object]) -> None:
        self.stopping = Stopping()
        self.is_delivered = False
        """Whether what is read is its result, for which it may take longer."""
        super().__init__(lambda: cancel(self.stopping.stop))
        self._loop = asyncio.get_running_loop()
        self._room = BoundedSemaphore(MOST_TOLD)
        self._value: list[T] = []

    def tell(self, part: Any) -> None:
        """Say something to whoever reads; wait while they are behind. Raises CancelledError if the
        task has been stopped."""
        while not self._room.acquire(timeout=_LOOK):
            self.stopping.check()
        self._call(lambda: None if self.over else self.put(part))

    async def some(self) -> list[Any]:
        """See ResponseStream. The task may tell more then."""
        parts = await super().some()
        for _ in parts:
            self._room.release()
        return parts

    def take_too_long(self, seconds: float) -> None:
        """End the task, unless its result is being read. The reader does not wait for its end."""
        if not self.is_delivered:
            reason = f"It took longer than {seconds:g} seconds."
            self.broke(CancelledError(reason))
            self.stopping.stop(reason)

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
    """Runs tasks, so many at once of each tenant; others wait for their turn. Used in the event
    loop.

    share: how many tasks of a tenant may run at once.
    """

    def __init__(
        self, share: Callable[[str], int] = lambda tenant: AT_ONCE, most_waiting: int = MOST_WAITING
    ) -> None:
        self._threads = ThreadPoolExecutor(_MOST_THREADS, "relquery-task")
        self._share, self._most = share, most_waiting
        self._running: Counter[str] = Counter()
        self._waiting: defaultdict[str, deque[Callable[[], None]]] = defaultdict(deque)
        self._lock = Lock()

    def start(
        self, work: Callable[[Task[T]], T], seconds: float | None = None, tenant: str = ""
    ) -> Task[T]:
        """Run a task in a thread. seconds: after which it is ended with an error.

        Raises HttpError if too many of the tenant are open.
        """
        task = Task[T](self._end)
        with self._lock:
            if len(self._waiting[tenant]) >= self._most:
                count = self._running[tenant] + self._most
                raise queue_full(f"{count} tasks of such requests are open already.")
            self._waiting[tenant].append(lambda: self._run(task, work, seconds, tenant))
            self._next(tenant)
        return task

    def _next(self, tenant: str) -> None:
        """Run what waits and may run."""
        waiting = self._waiting[tenant]
        while waiting and self._running[tenant] < self._share(tenant):
            self._running[tenant] += 1
            self._threads.submit(waiting.popleft())
        if not waiting:
            del self._waiting[tenant]

    def close(self) -> None:
        """Take no more tasks. Does not wait for those that run."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end(self, stop: Stop) -> None:
        with suppress(RuntimeError):  # the server has stopped
            self._threads.submit(stop)

    def _run(
        self, task: Task[T], work: Callable[[Task[T]], T], seconds: float | None, tenant: str
    ) -> None:
        task.stopping.begun = True
        try:
            with _limited(task, seconds):
                task.stopping.check()
                value = work(task)
        except BaseException as error:  # an interrupted DuckDB raises KeyboardInterrupt
            task.broke(error)
        else:
            task.done(value)
        finally:
            task.stopping.ended.set()
            with self._lock, suppress(RuntimeError):  # no more tasks are taken
                self._running[tenant] -= 1
                self._next(tenant)


def start(scope: RequestScope, work: Callable[[Task[T]], T]) -> Task[T]:
    """Run a task for a request. Raises HttpError if too many are open, or the server stops."""
    server = scope.server
    server.admission.check_open()
    server.admission.check_room()
    return server.kept(TaskPool).start(work, server.config.sql_seconds, scope.tenant)


@contextmanager
def _limited(task: Task[Any], seconds: float | None) -> Iterator[None]:
    """A block that is stopped after some seconds."""
    if seconds is None:
        yield
        return
    timer = Timer(seconds, task.take_too_long, (seconds,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
