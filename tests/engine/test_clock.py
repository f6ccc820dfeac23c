"""Clocks: real time, and a simulation's."""

from __future__ import annotations

import pytest

from relquery.engine.clock import RealClock, VirtualClock


def test_the_virtual_clock_moves_only_when_told_to() -> None:
    clock = VirtualClock()
    assert clock.now() == clock.now() == 0
    clock.advance(1.5)
    clock.advance(0)
    assert clock.now() == 1.5


def test_the_virtual_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        VirtualClock().advance(-0.1)


def test_the_real_clock_never_decreases() -> None:
    clock = RealClock()
    times = [clock.now() for _ in range(100)]
    assert times == sorted(times)
