"""Runs an action before a signal terminates the process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import current_thread, main_thread
from types import FrameType

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def before_termination(act: Callable[[], None]) -> Iterator[None]:
    """A block in which SIGTERM and SIGHUP end the process as usual, but only after `act`.

    This applies only in the main thread, where Python handles signals, and only if the program
    has no handler of its own. If it has one, that handler decides how the block ends.
    """
    with ExitStack() as changed:
        if current_thread() is main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    changed.enter_context(_handled(number, act))
        yield


@contextmanager
def _handled(number: signal.Signals, act: Callable[[], None]) -> Iterator[None]:
    def end(_: int, frame: FrameType | None) -> None:
        try:
            act()
        finally:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    signal.signal(number, end)
    try:
        yield
    finally:
        if signal.getsignal(number) is end:
            signal.signal(number, signal.SIG_DFL)
