"""Compiled bodies on torch's own threads.

A body is a function of one address, of int64 arguments, that each thread runs once; the threads
share the work by taking numbers from a counter. numba has an OpenMP library of its own, whose
threads would fight with torch's for the cores. So the bodies run in the library that torch has
loaded, whose threads are awake after torch's last operation.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from numba import types
from numba.core.ccallback import CFunc

from relquery.compilation import keep
from relquery.model.kernels.arguments import Arguments

_OPENMP = re.compile(r"/lib(gomp|iomp5|omp)[^/]*\.so[^/]*$")


class Body:
    """A function of the address of int64 arguments; compiled at its first use, and kept on disk."""

    def __init__(self, function: Callable[[Any], None]) -> None:
        self._function = function
        self._address, self._call = 0, _call(0)

    @property
    def address(self) -> int:
        """Of its machine code."""
        if not self._address:
            self._address = self._compile()
            self._call = _call(self._address)
        return self._address

    def run(self, arguments: Arguments, threads: int) -> None:
        """Run on so many threads, and return when all have ended."""
        address = self._address or self.address
        if threads == 1:
            self._call(arguments.place)
        elif (library := openmp()) is not None:
            library.GOMP_parallel(address, arguments.place, threads, 0)
        else:
            list(_pool().map(self._call, [arguments.place] * threads))

    def _compile(self) -> int:
        compiled: Any = CFunc(self._function, ((types.int64,), types.void), {}, {})
        keep(compiled)
        compiled.compile()
        _ALIVE.append(compiled)
        return int(compiled.address or 0)


_ALIVE: list[Any] = []
"""Compiled bodies, whose machine code is used while the process lives."""
_call: Any = ctypes.CFUNCTYPE(None, ctypes.c_int64)


def threads() -> int:
    """Threads that torch uses for one operation."""
    return torch.get_num_threads()


@cache
def openmp() -> Any:
    """The OpenMP library that torch has loaded, if it has GNU's entry to parallel code; else None.

    LLVM's and Intel's libraries have it too, on Linux.
    """
    try:
        loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    except OSError:
        return None
    found = sorted(filter(_OPENMP.search, loaded), key=lambda path: "/torch" not in path)
    for path in found:
        try:
            library = ctypes.CDLL(path)
            entry = library.GOMP_parallel
        except (OSError, AttributeError):
            continue
        entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        entry.restype = None
        return library
    return None


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="relquery-kernel")
