"""The process that has the tables, and forks a worker for each statement.

It has one thread, so that a fork copies nothing half done, and a fork shares its memory: a worker
has all tables within milliseconds, without a copy.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

from relquery.backends.remote.process import Replied, send_events
from relquery.errors import OrderWarning, PartialResultWarning, PromptWarning
from relquery.serve.logs import set_up
from relquery.serve.settings import ServeConfig

FORK = 0
"""In place of a worker's number, which says that it is to be reaped: another one is wanted, and the
server's end of its pipe follows."""
_SOON = 0.02  # seconds until it is looked again whether a killed worker has ended
_ALONE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


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
