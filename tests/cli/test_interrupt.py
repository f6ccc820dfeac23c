"""Ctrl-C, whatever a library makes of it."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

import pytest

from relquery.cli import interrupt
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


def test_an_interrupt_that_is_dropped_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "LOST", 0.05)

    def drop_three() -> None:
        with suppress(KeyboardInterrupt):
            press()
        for _ in range(2):
            with suppress(KeyboardInterrupt):
                time.sleep(60)
                pytest.fail("was not interrupted again")
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt), interruptible():
        drop_three()


def test_what_an_interrupt_ends_is_cleaned_up_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "LOST", 0.01)
    cleaned = []

    def clean() -> None:
        try:
            press()
        finally:
            for step in range(10):
                time.sleep(0.02)
                cleaned.append(step)

    with pytest.raises(KeyboardInterrupt), interruptible():
        clean()
    assert len(cleaned) == 10


def test_nothing_is_pressed_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "LOST", 0.001)
    for _ in range(50):
        with suppress(KeyboardInterrupt), interruptible(), suppress(KeyboardInterrupt):
            press()
        with pytest.raises(ValueError, match="other"), interruptible():
            raise ValueError("other")


def test_a_block_in_an_error_handler_is_interrupted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "LOST", 0.05)

    def handle() -> None:
        with interruptible():
            with suppress(KeyboardInterrupt):
                press()
            time.sleep(60)

    try:
        raise ValueError("an error")
    except ValueError:
        with pytest.raises(KeyboardInterrupt):
            handle()


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
