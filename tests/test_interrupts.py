"""Signals that wait until a block has ended."""

from __future__ import annotations

import signal

import pytest

from relquery.interrupts import postponed, unwrapped


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


def test_a_signal_that_need_not_wait_is_handled_at_once() -> None:
    came: list[str] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append("handled"))
    waits = iter([False, True])
    try:
        with postponed(lambda frame: next(waits)):
            signal.raise_signal(signal.SIGINT)
            came.append("block")
            signal.raise_signal(signal.SIGINT)
            came.append("end")
        assert came == ["handled", "block", "end", "handled"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_in_the_block_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError), postponed():
        _ = 1 / 0


def test_what_a_handler_raised_in_compiled_code_is_found() -> None:
    wrapped = SystemError("a function returned a result with an exception set")
    wrapped.__cause__ = KeyboardInterrupt()
    assert unwrapped(wrapped) is wrapped.__cause__
    twice = SystemError("another function returned a result with an exception set")
    twice.__cause__ = wrapped
    assert unwrapped(twice) is wrapped.__cause__
    other = SystemError("something else")
    assert unwrapped(other) is other
