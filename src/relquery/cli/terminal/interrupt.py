"""Ctrl-C, whatever the libraries below make of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[None]:
    """What Ctrl-C breaks in this block ends it as KeyboardInterrupt; for the main thread.

    DuckDB turns the interrupt into a RuntimeError, compiled code into a SystemError, and an import
    that it stops half-way fails later for a reason of its own.
    """
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    except Exception as error:
        if pressed:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)
