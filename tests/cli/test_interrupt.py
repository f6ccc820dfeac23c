"""Ctrl-C, whatever a library makes of it."""

from __future__ import annotations

import signal

import pytest

from relquery.cli.interrupt import interruptible


def test_an_interrupt_that_a_library_made_its_own_error_is_one_again() -> None:
    def press_in_a_library() -> None:
        try:
            press()
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible():
        press_in_a_library()
    with pytest.raises(ValueError, match="own fault"), interruptible():
        raise ValueError("own fault")
    assert signal.getsignal(signal.SIGINT) is before


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_impatient_person_does_not_stop_what_cleans_up() -> None:
    cleaned = False

    def clean() -> None:
        nonlocal cleaned
        try:
            press()
        finally:
            press()
            cleaned = True

    with pytest.raises(KeyboardInterrupt), interruptible(60.0):
        clean()
    assert cleaned


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_process_ends_the_block_like_ctrl_c(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN)  # nohup
        with interruptible():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)
