"""How the C library handles memory that CPU tensors release."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's mallopt."""
_LARGE = 128 * 2**10
"""Size in bytes from which a buffer gets its own mapping."""


def keep_freed_memory() -> None:
    """Ask glibc to keep large freed buffers instead of giving them back to the system.

    Activations of a few MB are allocated and freed at every layer. If they are returned to the
    system each time, their pages must be zeroed again, which costs a third of the prefill speed.
    """
    if (library := _glibc()) is not None:
        library.mallopt(_MMAP_THRESHOLD, 1 << 30)
        library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


@contextmanager
def return_freed_memory() -> Iterator[None]:
    """Return large buffers to the system at once, so a step takes no more memory than its tensors.

    Otherwise the buffers of a long step leave holes that later ones do not fit. We saw the process
    grow to two and a half times the memory of its tensors.
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
    """The glibc library; None if the C library is a different one."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if library is not None and hasattr(library, "mallopt") else None
