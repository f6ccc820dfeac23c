"""Ctrl-C, whatever the libraries below make of it."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

import typer

from relquery.cli.command import INTERRUPTED
from relquery.cli.terminal import say

_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
LOST = 1.0
"""Seconds after which what Ctrl-C raised is taken for lost, if nothing is handling it."""


@contextmanager
def interruptible(patience: float = 0.0) -> Iterator[None]:
    """What Ctrl-C breaks in this block ends it as KeyboardInterrupt; for the main thread.

    DuckDB turns the interrupt into a RuntimeError, and an import that it stops half-way fails later
    for a reason of its own. Others drop it, such as libraries that import pandas if they can: then
    it is raised again.
    So do the signals by which others end a process, so that calls under way are noted.
    patience: seconds in which a Ctrl-C after another does nothing, so that what the first one ends
    is cleaned up.
    """
    pressed: float | None = None
    around = sys.exception()
    again = _Again()

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if again.comes():
            if sys.exception() is not around:  # what the first one ends is being cleaned up
                return
        else:
            before, now = pressed, monotonic()
            if before is not None and now < before + patience:
                return
            if before is None:
                again.start()
            pressed = now
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    ending = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in ending:
        signal.signal(number, press)
    try:
        yield
    except Exception as error:
        if pressed is not None:
            raise KeyboardInterrupt from error
        raise
    finally:
        try:
            again.stop()
        finally:
            signal.signal(signal.SIGINT, before)
            for number in ending:
                signal.signal(number, signal.SIG_DFL)


@contextmanager
def exits_when_interrupted(said: str = "Interrupted.") -> Iterator[None]:
    """The same for a whole command: it says so, and ends with the exit code for it."""
    try:
        with interruptible():
            yield
    except KeyboardInterrupt:
        say(said)
        raise typer.Exit(INTERRUPTED) from None


class _Again(threading.Thread):
    """A thread that presses Ctrl-C again every LOST seconds until it is stopped."""

    def __init__(self) -> None:
        super().__init__(name="relquery-interrupt", daemon=True)
        self._stopped, self._presses = threading.Event(), threading.Event()
        self._turn = threading.Lock()

    def run(self) -> None:
        while not self._stopped.wait(LOST):
            with self._turn:  # never after stop()
                if not self._stopped.is_set():
                    self._presses.set()
                    _press()

    def comes(self) -> bool:
        """Whether this thread, and not the user, has just pressed."""
        comes = self._presses.is_set()
        self._presses.clear()
        return comes

    def stop(self) -> None:
        with self._turn:
            self._stopped.set()


def _press() -> None:
    if hasattr(signal, "pthread_kill"):  # wakes the main thread also where it waits
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


@contextmanager
def deferred(said: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C in this block ends it when it is done; a second one at once. For the main thread.

    For what could not be run again if it was stopped half-way, such as imports. said: called when
    Ctrl-C is pressed first, to tell that it is heard.
    """
    presses = 0

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            raise KeyboardInterrupt
        said()

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if presses:
        signal.raise_signal(signal.SIGINT)
