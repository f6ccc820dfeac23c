"""The only module that imports the compiler, so that the solvers stay typed Python.

Compiled code cannot be interrupted from outside. Its long loops check a flag, an array `stopped` of
one bool. Once it is set, their results are meaningless.

Functions called from Python return arrays, numbers or plain tuples of these, never a NamedTuple. To
make one, the compiler would call its class, which is Python code. If a pending signal (Ctrl-C)
raises there, the process crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from relquery.arrays import Bools
from relquery.compilation import Watched, keep

THREADS = 2
PATIENCE = 0.1  # seconds between checks for a signal that woke another thread

P = ParamSpec("P")
R = TypeVar("R")

_interpreting: ContextVar[bool] = ContextVar("interpreting", default=False)


class Compiled(Watched):
    """A function that can also be interpreted."""

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args) if _interpreting.get() else super().__call__(*args)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call and keep the machine code on disk."""
    made = Compiled(function, targetoptions={"nopython": True, "nogil": True})
    keep(made)
    return cast(Callable[P, R], made)


def is_ready(function: Callable[..., object]) -> bool:
    """Whether machine code of a compiled function is at hand, in memory or on disk."""
    made = cast(Any, function)
    on_disk = getattr(made._cache, "_cache_file", None)  # numba has no public way to ask
    return bool(made.overloads or (on_disk is not None and on_disk._load_index()))


@contextmanager
def interpreted() -> Iterator[None]:
    """Run compiled functions as the Python code that they are: the same results, later or sooner.

    Compiling takes up to a minute; a table of a few rows is ordered in less time without it.
    """
    before = _interpreting.set(True)
    try:
        with np.errstate(over="ignore"):  # as in machine code, hashes overflow
            yield
    finally:
        _interpreting.reset(before)


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


def side_by_side(tasks: Sequence[Callable[[], R]], stopped: Bools) -> list[R]:
    """The results of the tasks, run THREADS at a time; compiled code runs in parallel.

    If this thread is interrupted (Ctrl-C), the flag is set and the tasks end soon. Interpreted
    code would take turns, so its tasks run one after the other, without threads.
    """
    if _interpreting.get():
        return [task() for task in tasks]
    with ThreadPoolExecutor(THREADS) as threads:
        running = [threads.submit(copy_context().run, task) for task in tasks]
        try:
            return [_result(each) for each in running]
        except BaseException:
            stopped[0] = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise
