"""Work that blocks, in threads beside the event loop, which a client that leaves ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import Any, Generic, TypeVar

from starlette.requests import Request

from relquery.serve.answering import ClientGoneError, left
from relquery.serve.asked import Caller
from relquery.serve.errors import HttpError
from relquery.serve.ours.stopping import Stopping

T = TypeVar("T")
Event = dict[str, Any]

AT_ONCE = 8
"""Tasks that run at the same time."""
MOST_WAITING = 64
"""Tasks that may wait for their turn; more are answered 429."""


class Run(Generic[T]):
    """One task and what it tells. Made by `Runs.start`, in the event loop, and read there.

    stopping: for the task's thread, as are `tell` and `end`.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.stopping = Stopping()
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._told: deque[Event] = deque()
        self._result: asyncio.Future[T] = self._loop.create_future()
        self._news = asyncio.Event()

    def tell(self, event: Event) -> None:
        """Say something to whoever reads."""
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._take, event)

    def end(self, result: T | None, error: BaseException | None) -> None:
        """The task has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end, result, error)

    async def news(self) -> Event | None:
        """The next thing that was told; None once the task has ended."""
        while not self._told and not self._result.done():
            self._news.clear()
            await self._news.wait()
        return self._told.popleft() if self._told else None

    async def result(self) -> T:
        """What the task gave. Raises what it raised."""
        return await asyncio.shield(self._result)

    async def whole(self, request: Request) -> T:
        """`result`; a client that leaves ends the task. Raises ClientGoneError then."""
        leaving = asyncio.ensure_future(left(request.receive))
        try:
            await asyncio.wait((self._result, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not self._result.done():
                raise ClientGoneError
            return self._result.result()
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
            self.leave()

    def leave(self) -> None:
        """Nobody reads any more; the task is ended if it has not. Does not wait."""
        if not self._result.done():
            self._result.cancel()
            with suppress(RuntimeError):  # the server has stopped
                self._threads.submit(self.stopping.stop)
        elif not self._result.cancelled():
            self._result.exception()  # it need not be told to anybody

    def _take(self, event: Event) -> None:
        self._told.append(event)
        self._news.set()

    def _end(self, result: T | None, error: BaseException | None) -> None:
        if not self._result.done():
            if error is not None:
                self._result.set_exception(error)
            else:
                self._result.set_result(result)  # type: ignore[arg-type]
        self._news.set()


class Runs:
    """Runs tasks, so many at once; others wait for their turn. Used in the event loop."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._threads = ThreadPoolExecutor(at_once, "relquery-task")
        self._stops = ThreadPoolExecutor(at_once, "relquery-stop")
        self._open, self._most = 0, at_once + most_waiting
        self._lock = Lock()

    def start(self, task: Callable[[Run[T]], T], seconds: float | None = None) -> Run[T]:
        """Run a task in a thread. seconds: after which it is ended with an error.

        Raises HttpError if too many are open.
        """
        with self._lock:
            if self._open >= self._most:
                raise _too_many(self._open)
            self._open += 1
        run = Run[T](self._stops)
        self._threads.submit(self._run, run, task, seconds)
        return run

    def close(self) -> None:
        """Take no more tasks. Does not wait for those that run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._stops.shutdown(wait=False)

    def _run(self, run: Run[T], task: Callable[[Run[T]], T], seconds: float | None) -> None:
        stopping = run.stopping
        try:
            with _limited(stopping, seconds):
                stopping.check()
                result = task(run)
        except BaseException as error:  # an interrupted DuckDB raises KeyboardInterrupt
            run.end(None, stopping.meaning(error))
        else:
            run.end(result, None)
        finally:
            stopping.ended.set()
            with self._lock:
                self._open -= 1


def start(caller: Caller, task: Callable[[Run[T]], T]) -> Run[T]:
    """Run a task for a request. Raises HttpError if too many are open, or the server stops."""
    caller.server.check_open()
    caller.server.check_room()
    return caller.server.kept(Runs).start(task, caller.server.config.sql_seconds)


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


def _too_many(count: int) -> HttpError:
    return HttpError(
        429,
        f"{count} tasks of such requests are open already. Ask again later.",
        "queue_full",
        headers={"Retry-After": "1"},
    )
