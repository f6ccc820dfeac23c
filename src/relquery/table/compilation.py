"""How long compiling took, which no measured time should include."""

from __future__ import annotations

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
