"""Signals wait where the exception that they raise would do harm, or be lost."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


@contextmanager
def postponed() -> Iterator[None]:
    """Run a block whole: Python's handlers of signals, such as Ctrl-C's, run after it.

    They run in the main thread alone, so nothing needs to be done in another.
    """
    # `_signal` is what `signal` wraps. Each step comes here twice, and `signal` tries to make an
    # Enum of every handler, which takes 12 us.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {number: _signal.getsignal(number) for number in _SIGNALS}
    handled = {number: handler for number, handler in before.items() if callable(handler)}

    def handle(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))

    for number in handled:
        _signal.signal(number, handle)
    try:
        yield
    finally:
        try:
            _restore(handled)
        except BaseException:  # what a handler raised that was there again
            _restore(handled)
            raise
        for number, frame in came:
            handled[signal.Signals(number)](number, frame)


def _restore(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], Any]]) -> None:
    for number, handler in handlers.items():
        _signal.signal(number, handler)
