"""What the C library does with memory that tensors on a CPU give back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's mallopt."""
_LARGE = 128 * 2**10
"""Bytes of a buffer that is worth a mapping of its own."""


def keep_freed_memory() -> None:
    """Ask glibc to keep large freed buffers instead of giving them back to the system.

    Activations of some MB are allocated and freed at every layer; returned to the system each
    time, their pages must be zeroed anew, which costs a third of the prefill speed on CPU.
    """
    if (library := _glibc()) is not None:
        library.mallopt(_MMAP_THRESHOLD, 1 << 30)
        library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


@contextmanager
def return_freed_memory() -> Iterator[None]:
    """Have large buffers given back at once meanwhile, so that a step takes what its tensors take.

    Kept, those of a long step leave holes that the next ones do not fit: the process was seen to
    grow to two and a half times what its tensors held at once.
    """
    library = _glibc()
    if library is None:
        yield
        return
    library.malloc_trim(0)
    library.mallopt(_MMAP_THRESHOLD, _LARGE)
    library.mallopt(_TRIM_THRESHOLD, _LARGE)
    try:
        yield
    finally:
        keep_freed_memory()


def _glibc() -> Any:
    """None where the C library is another one."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if library is not None and hasattr(library, "mallopt") else None
