"""The one place that names the compiler, so that the solvers stay typed Python.

Nothing interrupts compiled code from outside: its long loops look at a flag, an array `stopped` of
one bool, and what they give once it is set means nothing.

What Python calls returns arrays, numbers or plain tuples of them, never a NamedTuple: to make one,
the compiler calls its class, which is Python code, and where a signal that came meanwhile raises
there (Ctrl-C), the process crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import ParamSpec, TypeVar, cast

import numba

from relquery.arrays import Bools

THREADS = 2
PATIENCE = 0.1  # seconds after which to see whether a signal came that woke another thread

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call and keep the machine code on disk.

    The code on disk is renewed when the function's own file changes, not when a compiled function
    of another file that it calls does: delete `__pycache__` after such a change. Where no folder
    can be written, each process compiles anew.
    """
    try:
        return cast(Callable[P, R], numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba found no place for its cache
        return cast(Callable[P, R], numba.njit(nogil=True)(function))


class StoppedError(Exception):
    """A search ended early: in a thread whose result nobody awaits any more."""


def go_on(stopped: Bools) -> None:
    """Raises StoppedError once the flag is set."""
    if stopped[0]:
        raise StoppedError


def _result(task: Future[R]) -> R:
    while not wait([task], PATIENCE).done:
        pass
    return task.result()


def side_by_side(tasks: Sequence[Callable[[], R]], stopped: Bools) -> list[R]:
    """What the tasks give, THREADS at a time: compiled code runs side by side.

    Where this thread is broken off (Ctrl-C), the flag is set and the tasks end soon.
    """
    with ThreadPoolExecutor(THREADS) as threads:
        running = [threads.submit(task) for task in tasks]
        try:
            return [_result(each) for each in running]
        except BaseException:
            stopped[0] = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise
