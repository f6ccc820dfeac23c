"""Kernels on torch's own threads.

A kernel is a function of one address, of int64 arguments, that each thread runs once; the threads
share the work by taking numbers from a counter. Threads of our own would fight with torch's for
the cores. So the kernels run in the OpenMP library that torch has loaded, whose threads are awake
after torch's last operation.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch

from relquery import _native
from relquery.model.kernels.arguments import Arguments

_OPENMP = re.compile(r"/lib(gomp|iomp5|omp)[^/]*\.so[^/]*$")


class Body:
    """A kernel of relquery.native, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._address = 0

    @property
    def address(self) -> int:
        """Of its machine code."""
        if not self._address:
            has_openmp()  # before the first run
            self._address = _native.body(self.name)
        return self._address

    def run(self, arguments: Arguments, threads: int) -> None:
        """Run on so many threads, and return when all have ended."""
        _native.run(self._address or self.address, arguments.place, threads)


def threads() -> int:
    """Threads that torch uses for one operation."""
    return torch.get_num_threads()


@cache
def has_openmp() -> bool:
    """Whether torch has loaded an OpenMP library with GNU's entry to parallel code, which kernels
    then use.

    LLVM's and Intel's libraries have it too, on Linux.
    """
    try:
        loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    except OSError:
        return False
    found = sorted(filter(_OPENMP.search, loaded), key=lambda path: "/torch" not in path)
    for path in found:
        try:
            library = ctypes.CDLL(path)
            entries = library.GOMP_parallel, library.omp_get_num_threads
        except (OSError, AttributeError):
            continue
        _native.use_openmp(*map(_address_of, entries))
        return True
    return False


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
