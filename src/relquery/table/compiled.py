"""The one place that names the compiler, so that the solvers stay typed Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

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
