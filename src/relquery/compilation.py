"""Compiling loops to machine code: told once, whichever part of relquery needs it first."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, cast

from numba.core import event
from numba.core.registry import CPUDispatcher


class Watched(CPUDispatcher):
    """A function of relquery; compiled at its first call, or read from disk if it was before."""


class _Listener(event.Listener):
    def on_start(self, event: Any) -> None:
        if isinstance(event.data["dispatcher"], Watched):
            _tell()

    def on_end(self, event: Any) -> None:
        pass


@cache
def _tell() -> None:
    logging.getLogger("relquery").warning(
        "Compiling loops for this machine. This can take a minute, once per installation."
    )


cast(Any, event).register("numba:compile", _Listener())
