"""Ctrl-C, whatever the libraries below make of it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

import typer

from relquery.cli.command import INTERRUPTED
from relquery.cli.terminal import say

_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def interruptible(patience: float = 0.0) -> Iterator[None]:
    """What Ctrl-C breaks in this block ends it as KeyboardInterrupt; for the main thread.

    DuckDB turns the interrupt into a RuntimeError, and an import that it stops half-way fails later
    for a reason of its own. Signals by which others end a process do the same, so that calls under
    way are noted.
    patience: seconds in which a Ctrl-C after another does nothing, so that what the first one ends
    is cleaned up.
    """
    pressed: float | None = None

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        earlier, now = pressed, monotonic()
        if earlier is None or now >= earlier + patience:
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
