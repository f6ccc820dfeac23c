"""Compiling loops to machine code: kept on disk, and told once, whichever part needs it first."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing import current_process
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, cast

from numba.core import event
from numba.core.registry import CPUDispatcher

from relquery.interrupts import postponed


class Watched(CPUDispatcher):
    """A function of relquery; compiled at its first call, or read from disk if it was before."""

    def compile(self, sig: Any) -> Any:
        """Compile it for a signature. Ctrl-C ends it, soon if not at once."""
        with postponed(_is_called_back):
            return super().compile(sig)


def _is_called_back(frame: FrameType | None) -> bool:
    """Whether LLVM has called Python: what is raised there is printed and lost."""
    while frame is not None and frame.f_code.co_name not in _CALLED_BACK:
        frame = frame.f_back
    return frame is not None


_CALLED_BACK = "_raw_object_cache_notify", "_raw_object_cache_getbuffer"
"""Of llvmlite's ExecutionEngine. LLVM works for seconds on end and then calls the first, so that
most signals of that time are handled there."""


LOOPS = "model/attention", "model/kernels", "table"
"""Folders of the package with the sources of compiled functions."""


def keep(made: Any) -> None:
    """Keep the machine code of a function on disk, until the source of any changes.

    numba looks at the function's own file alone, and not at those of the functions that it calls.
    If no folder is writable, each process compiles again.
    """
    with suppress(RuntimeError):  # numba found no folder for its cache
        made.enable_caching()
        made._cache._cache_file._source_stamp = sources()


@cache
def sources() -> str:
    """A stamp of all sources of compiled functions, by their sizes and times."""
    package = Path(__file__).parent
    stamp = hashlib.sha256()
    for folder in LOOPS:
        for file in sorted((package / folder).rglob("*.py")):
            found = file.stat()
            stamp.update(f"{file}:{found.st_size}:{found.st_mtime_ns};".encode())
    return stamp.hexdigest()


class Progress(event.Listener):
    """Says when compiling begins, and every EVERY seconds how many functions are compiled."""

    EVERY = 10.0

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._functions = 0
        self._told: float | None = None
        self._seconds, self._begun, self._depth = 0.0, 0.0, 0

    def on_start(self, event: Any) -> None:
        """A function's compilation begins; inside it, those that it calls are compiled."""
        if not isinstance(event.data["dispatcher"], Watched):
            return
        if self._depth == 0:
            self._begun = self._clock()
        self._depth += 1
        if self._told is None:
            self._told = 0.0
            _LOG.warning(
                "Compiling loops for this machine%s. "
                "This can take some minutes, once per installation.",
                _where(),
            )

    def on_end(self, event: Any) -> None:
        """A function is compiled, or an interrupt has ended its compilation."""
        if not isinstance(event.data["dispatcher"], Watched):
            return
        self._depth -= 1
        self._functions += 1
        seconds = self._seconds + self._clock() - self._begun
        if self._depth == 0:
            self._seconds = seconds
        if self._told is not None and seconds >= self._told + self.EVERY:
            self._told = seconds
            _LOG.warning(
                "Compiled %d functions in %.0f seconds so far%s.",
                self._functions,
                seconds,
                _where(),
            )


def _where() -> str:
    """In which process, if not in the main one: several may compile at once."""
    process = current_process()
    return "" if process.name == "MainProcess" else f" (process {process.name})"


_LOG = logging.getLogger("relquery")
cast(Any, event).register("numba:compile", Progress())
