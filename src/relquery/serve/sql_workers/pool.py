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
from relquery.serve.sql_workers.work import RegisteredTable

_LOG = logging.getLogger(__name__)
WARM = 4
"""Workers that wait for work."""
_ALONE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class SqlWorker:
    """A process that does one job. pipe: to it."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._number = 0
        self._handle: int | None = None

    def await_start(self) -> None:
        """Wait until it is there. Raises EOFError or OSError where there is nobody to fork it."""
        (self._number,) = receive(self.pipe)
        if hasattr(os, "pidfd_open"):  # the number may be another process's later
            self._handle = os.pidfd_open(self._number)

    def kill(self) -> None:
        """End it, if it has not ended."""
        with suppress(ProcessLookupError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            elif self._number:
                os.kill(self._number, signal.SIGKILL)

    def leave(self) -> None:
        """End it; it is not needed any more."""
        self.kill()
        self.pipe.close()
        if self._handle is not None:
            os.close(self._handle)
        self._handle, self._number = None, 0


class WorkerPool:
    """A pool that makes workers, and has some ready. Any thread may use it.

    memory: what the tables and one statement may take.
    """

    def __init__(self, config: ServeConfig) -> None:
        """Raises ConfigError where there are no forks."""
        if not hasattr(os, "fork"):
            raise ConfigError(
                "A server runs statements in processes that are forked, which this system cannot. "
                "Run it on Linux or macOS."
            )
        self.memory = config.sql_memory
        self._config = config
        # Of searched tables, which are the same for all.
        self._indexes = TemporaryDirectory(prefix="relquery-indexes-")
        self._lock, self._warm = Lock(), deque[SqlWorker]()
        self._tables: tuple[RegisteredTable, ...] | None = None
        self._closed = False
        self._process: BaseProcess | None = None
        atexit.register(self.close)  # before multiprocessing's own handler, which would wait

    def start(self) -> None:
        """Begin to read the tables, unless it has."""
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self._control, theirs = context.Pipe()
        given = theirs, self._config, self._indexes.name
        self._process = context.Process(target=zygote, args=given, name="relquery-sql", daemon=True)
        self._process.start()
        theirs.close()

    @property
    def tables(self) -> tuple[RegisteredTable, ...]:
        """What statements can read. Waits until they are read. Raises TableError for what cannot
        be read, and ConfigError for a wrong memory."""
        with self._lock:
            return self._await_tables()

    def take(self, *, reserved: bool) -> SqlWorker:
        """A worker, of which the caller says when it is not needed any more. reserved: whether it
        may be the last one that is ready. Raises EOFError or OSError once the pool is closed."""
        with self._lock:
            is_ready = len(self._warm) > (not reserved)
            worker = self._warm.popleft() if is_ready else self._forked()
            process = self._process
        try:  # others need not wait until it is forked
            worker.await_start()
        except (EOFError, OSError):
            with self._lock:
                if self._process is process and not self._closed:  # nobody else has done it
                    self._restart()
                worker = self._forked()
            worker.await_start()
        return worker

    def refill(self) -> None:
        """Have as many ready as should be. Raises what `tables` raises."""
        with self._lock:
            while len(self._warm) < WARM and not self._closed:
                self._warm.append(self._forked())

    def close(self) -> None:
        """End all workers."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._control.close()
                if self._tables is None:
                    self._process.kill()  # it would read them to the end
        for worker in self._warm:
            worker.pipe.close()
        if self._process is not None:
            self._process.join()
        self._indexes.cleanup()

    def _restart(self) -> None:
        _LOG.error("the process that makes SQL workers has ended. Starting it again.")
        self._warm.clear()
        self._control.close()
        assert self._process is not None
        self._process.join()
        self._tables = self._process = None
        self.start()

    def _await_tables(self) -> tuple[RegisteredTable, ...]:
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

    def _forked(self) -> SqlWorker:
        self._await_tables()
        ours, theirs = Pipe()
        number = None if self._process is None else self._process.pid
        with suppress(OSError):  # its end is seen at the pipe
            send_handle(self._control, theirs.fileno(), number)
        theirs.close()
        return SqlWorker(ours)


def zygote(control: Connection, config: ServeConfig, indexes: str) -> None:
    """The main function of the process, which forks a worker for each pipe that it is sent. It ends
    when the server's end of `control` is closed, and workers end with their pipes.

    indexes: folder for those of searched tables.
    """
    # It is the server who decides when to stop; see relquery.backends.remote.process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers that have ended
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
    with suppress(EOFError, OSError):
        while True:
            handle = recv_handle(control)
            if os.fork() == 0:
                control.close()
                worker.serve_one(Connection(handle), desk)
            os.close(handle)
    os._exit(0)
