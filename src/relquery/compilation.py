"""Compiling loops to machine code: kept on disk, and told once, whichever part needs it first."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

from numba.core import event
from numba.core.registry import CPUDispatcher


class Watched(CPUDispatcher):
    """A function of relquery; compiled at its first call, or read from disk if it was before."""


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


class _Listener(event.Listener):
    def on_start(self, event: Any) -> None:
        if isinstance(event.data["dispatcher"], Watched):
            _tell()

    def on_end(self, event: Any) -> None:
        pass


@cache
def _tell() -> None:
    logging.getLogger("relquery").warning(
        "Compiling loops for this machine. This can take some minutes, once per installation."
    )


cast(Any, event).register("numba:compile", _Listener())
