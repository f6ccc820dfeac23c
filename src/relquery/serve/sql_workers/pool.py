"""Workers that are ready, and the process that forks them.

That process has the tables. It has one thread, so that a fork copies nothing half done, and a fork
shares its memory: a worker has all tables within milliseconds, without a copy.
"""

from __future__ import annotations

import atexit
import gc
import logging
import multiprocessing
import os
import signal
import sys
import warnings
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recv_handle, send_handle
from tempfile import TemporaryDirectory
from threading import Lock

from relquery.backends.remote.process import Replied, receive, send_events
from relquery.errors import ConfigError, OrderWarning, PartialResultWarning, PromptWarning
from relquery.serve.logs import set_up
from relquery.serve.settings import ServeConfig
from relquery.serve.sql_workers.work import Table

_LOG = logging.getLogger(__name__)
WARM = 4
"""Workers that wait for work."""
FORK = 0
"""In place of a worker's number, which says that it is to be reaped: another one is wanted, and the
server's end of its pipe follows."""
_SOON = 0.02  # seconds until it is looked again whether a killed worker has ended
_ALONE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Worker:
    """A process that does one job. pipe: to it."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.number = 0

    def kill(self) -> None:
        """End it."""
        if self.number:
            with suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGKILL)


class Pool:
    """Makes workers, and has some ready. Any thread may use it.

    memory: what the tables and one statement may take.
    """

    def __init__(self, config: ServeConfig) -> None:
        """Begin to read the tables. Raises ConfigError where there are no forks."""
        if not hasattr(os, "fork"):
            raise ConfigError(
                "A server runs statements in processes that are forked, which this system cannot. "
                "Run it on Linux or macOS."
            )
        self.memory = config.sql_memory
        self._config = config
        # Of searched tables, which are the same for all.
        self._indexes = TemporaryDirectory(prefix="relquery-indexes-")
        self._lock, self._warm = Lock(), deque[Worker]()
        self._tables: tuple[Table, ...] | None = None
        self._closed = False
        self._start()
        atexit.register(self.close)  # before multiprocessing's own handler, which would wait

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._control, theirs = context.Pipe()
        self._process = context.Process(
            target=zygote,
            args=(theirs, self._config, self._indexes.name),
            name="relquery-sql",
            daemon=True,
        )
        self._process.start()
        theirs.close()

    @property
    def tables(self) -> tuple[Table, ...]:
        """What statements can read. Waits until they are read. Raises TableError for what cannot
        be read, and ConfigError for a wrong memory."""
        with self._lock:
            return self._await_tables()

    def take(self, *, reserved: bool) -> Worker:
        """A worker, of which the caller says when it is not needed any more. reserved: whether it
        may be the last one that is ready. Raises EOFError or OSError once the pool is closed."""
        with self._lock:
            is_ready = len(self._warm) > (not reserved)
            worker = self._warm.popleft() if is_ready else self._forked()
            process = self._process
        try:  # others need not wait until it is forked
            (worker.number,) = receive(worker.pipe)
        except (EOFError, OSError):
            self._restart(process)
            with self._lock:
                worker = self._forked()
            (worker.number,) = receive(worker.pipe)
        return worker

    def refill(self) -> None:
        """Have as many ready as should be. Raises what `tables` raises."""
        with self._lock:
            while len(self._warm) < WARM and not self._closed:
                self._warm.append(self._forked())

    def leave(self, worker: Worker) -> None:
        """End a worker."""
        worker.kill()
        worker.pipe.close()
        with self._lock, suppress(OSError):
            self._control.send(worker.number)

    def close(self) -> None:
        """End all workers."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            self._control.close()
            if self._tables is None:
                self._process.kill()  # it would read them to the end
        for worker in self._warm:
            worker.pipe.close()
        self._process.join()
        self._indexes.cleanup()

    def _restart(self, process: BaseProcess) -> None:
        """Start another process in place of one that has ended, unless somebody has."""
        with self._lock:
            if self._closed or self._process is not process:
                return
            _LOG.error("the process that makes SQL workers has ended. Starting it again.")
            self._warm.clear()
            self._control.close()
            process.join()
            self._tables = None
            self._start()

    def _await_tables(self) -> tuple[Table, ...]:
        if self._tables is None:
            try:
                (told,) = receive(self._control)
            except (EOFError, OSError):
                raise ConfigError(
                    "The process that reads the tables has ended. See its log."
                ) from None
            if told.error is not None:
                raise told.error
            self._tables = tuple(told.value)
        return self._tables

    def _forked(self) -> Worker:
        self._await_tables()
        ours, theirs = Pipe()
        with suppress(OSError):  # its end is seen at the pipe
            self._control.send(FORK)
            send_handle(self._control, theirs.fileno(), self._process.pid)
        theirs.close()
        return Worker(ours)


def zygote(control: Connection, config: ServeConfig, indexes: str) -> None:
    """The main function of the process; it ends, with all workers, when the server's end of
    `control` is closed.

    indexes: folder for those of searched tables.
    """
    # It is the server who decides when to stop; see relquery.backends.remote.process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.environ.update(dict.fromkeys(_ALONE, "1"))
    sys.set_int_max_str_digits(0)  # a worker that takes long is killed
    from relquery.serve.sql_workers import worker

    set_up(config.log, config.log_level)
    for kind in (PartialResultWarning, OrderWarning, PromptWarning):
        warnings.simplefilter("ignore", kind)  # those who ask are told in their answers
    try:
        desk = worker.prepared(config.tables, config.sql_memory, indexes)
    except Exception as error:
        send_events(control, [Replied(0, None, error)])
        return
    gc.collect()
    gc.freeze()  # a collection would copy what is shared
    send_events(control, [Replied(0, desk.tables.all)])
    workers: dict[int, bool] = {}
    with suppress(EOFError, OSError):
        while True:
            if not control.poll(_SOON if any(workers.values()) else None):
                _reap(workers)
                continue
            if (number := control.recv()) != FORK:
                if number in workers:  # not of an earlier process like this one
                    workers[number] = True
                continue
            handle = recv_handle(control)
            if (number := os.fork()) == 0:
                control.close()
                worker.serve_one(Connection(handle), desk)
            os.close(handle)
            workers[number] = False
    for number in workers:
        os.kill(number, signal.SIGKILL)
    os._exit(0)


def _reap(workers: dict[int, bool]) -> None:
    """Take note of the end of those that the server has left: until then a number is not given to
    another process, so that the server kills none but its own."""
    for number in [each for each, is_left in workers.items() if is_left]:
        if os.waitpid(number, os.WNOHANG)[0]:
            del workers[number]
