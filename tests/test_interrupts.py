"""Signals that wait until a block has ended."""

from __future__ import annotations

import signal

import pytest

from relquery.interrupts import postponed


def test_handlers_run_after_the_block_and_are_as_before() -> None:
    came: list[str] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append("handled"))
    try:
        handler = signal.getsignal(signal.SIGINT)
        with postponed():
            signal.raise_signal(signal.SIGINT)
            came.append("block")
        assert came == ["block", "handled"]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_in_the_block_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError), postponed():
        _ = 1 / 0
