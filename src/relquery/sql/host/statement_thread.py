"""A thread for DuckDB's statements beside the main one, so that Ctrl-C is heard while one computes.

DuckDB looks for an interrupt between two chunks of rows. Within one it may compute for a minute,
and Python's handler of Ctrl-C cannot run as long as the main thread is inside of DuckDB.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 1.5
"""Seconds in which an interrupted statement may end before the caller goes on without it."""
TICK = 0.1
"""Seconds of a wait. A handler of signals runs between two of them where a program has it restart
system calls, as asyncio's own handlers do; else it ends the wait."""
_NAME, _LEFT = "relquery-duckdb", "relquery-duckdb, left"
"""Of such a thread, and of one whose statement was left."""


class StatementThread:
    """The thread of one turn at a connection. It begins with the first statement that needs it.

    interrupt: ends the statement that DuckDB runs, as soon as DuckDB looks.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] | None = None
        self._thread: threading.Thread | None = None
        self._left: Future[Any] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a statement that was left still computes."""
        return self._left is not None and not self._left.done()

    def run(self, statement: Callable[[], T]) -> T:
        """What a statement gives. Raises what it raises.

        A handler of signals that raises, as that of Ctrl-C does, ends it. If it has not ended after
        PATIENCE seconds, it is left: `is_busy` until it has.
        """
        if not _hears_signals():
            return statement()
        job: Future[T] = Future()
        try:
            self._put(job, statement)
            while not job.done():
                wait([job], TICK)
            return job.result()
        except BaseException:
            if not (job.done() or job.cancel()):  # a signal, and not an error of the statement
                self._left = job
                self._interrupt()
                wait([job], PATIENCE)
                if self._thread is not None and not job.done():
                    self._thread.name = _LEFT
                    atexit.register(_end_process)
            raise
        finally:
            del job  # which has the error that has this frame

    def afterwards(self, action: Callable[[], object]) -> None:
        """Do something once the statement that was left has ended; at once if none was."""
        if self.is_busy:
            self._left = Future()
            self._put(self._left, action)
        else:
            action()

    def await_end(self) -> None:
        """Wait until the statement that was left has ended."""
        if self._left is not None:
            wait([self._left])

    def end(self) -> None:
        """End the thread when it has nothing left to do."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None

    def _put(self, job: Future[Any], action: Callable[[], Any]) -> None:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            # A daemon: Python ends without a statement that was left.
            work = threading.Thread(target=_work, args=(self._jobs,), name=_NAME, daemon=True)
            self._thread = work
            work.start()
        self._jobs.put((job, action))


def _work(jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (job := jobs.get()) is not None:
        future, action = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(action())
            except BaseException as error:  # raised where it is waited for
                future.set_exception(error)
        del job, future, action  # what they hold is not kept until the next one


def _hears_signals() -> bool:
    """Whether this is the thread in which Python would handle Ctrl-C."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and callable(signal.getsignal(signal.SIGINT))


def is_any_left() -> bool:
    """Whether a statement that was left still computes, in this process."""
    return any(thread.name == _LEFT for thread in threading.enumerate())


def leave_process(code: int) -> None:
    """End the process without DuckDB's own end, which waits for a statement that was left."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)


def _end_process() -> None:
    """Where Ctrl-C has ended the program, end the process as Python does, at once: before what else
    is to be done at the end, as DuckDB waits there."""
    if is_any_left() and getattr(sys, "last_type", None) is KeyboardInterrupt:
        logging.shutdown()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with suppress(OSError):
            os.kill(os.getpid(), signal.SIGINT)
        leave_process(1)
