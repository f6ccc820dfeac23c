"""Searches side by side, which end early if one is interrupted.

Loops in C++ cannot be interrupted from outside. The long ones look at a flag, an array `stopped` of
one bool. Once it is set, their results are meaningless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from relquery.arrays import Bools

THREADS = 2
_FEW_CELLS = 1 << 12
PATIENCE = 0.1  # seconds between checks for a signal that woke another thread

R = TypeVar("R")


class StoppedError(Exception):
    """A search was stopped early, in a thread whose result is no longer needed."""


def go_on(stopped: Bools) -> None:
    """Raises StoppedError once the flag is set."""
    if stopped[0]:
        raise StoppedError


def _result(task: Future[R]) -> R:
    while not wait([task], PATIENCE).done:
        pass
    return task.result()


def side_by_side(tasks: Sequence[Callable[[], R]], stopped: Bools, cells: int) -> list[R]:
    """The results of the tasks, run THREADS at a time.

    If this thread is interrupted (Ctrl-C), the flag is set and the tasks end soon. cells: of the
    table that they go through; of few, threads would take longer to begin than the tasks.
    """
    if cells <= _FEW_CELLS:
        return [task() for task in tasks]
    with ThreadPoolExecutor(THREADS) as threads:
        running = [threads.submit(copy_context().run, task) for task in tasks]
        try:
            return [_result(each) for each in running]
        except BaseException:
            stopped[0] = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise
