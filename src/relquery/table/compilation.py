"""Tell the user that functions are being compiled, and how long that took."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from numba.core import event

from relquery.table.compiled import Compiled


class Compilation(event.Listener):
    """seconds: spent on our functions, and on those of numba that they call."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun: list[float] = []

    def on_start(self, event: Any) -> None:
        ours = isinstance(event.data["dispatcher"], Compiled)
        if ours and not self.seconds and not self._begun:
            logging.getLogger("relquery").warning(
                "Compiling the search for a good order. This can take a minute, once per "
                "installation."
            )
        if ours or self._begun:
            self._begun.append(perf_counter())

    def on_end(self, event: Any) -> None:
        if self._begun:
            begun = self._begun.pop()
            if not self._begun:
                self.seconds += perf_counter() - begun


@contextmanager
def watch_compilation() -> Iterator[Compilation]:
    """What is compiled meanwhile, in any thread: numba compiles one function at a time."""
    compilation = Compilation()
    with event.install_listener("numba:compile", compilation):
        yield compilation
