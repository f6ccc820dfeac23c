"""Peaks of memory are counted: what is there at once, once, and no longer than it lives."""

from __future__ import annotations

import pytest
import torch

from relquery.model.slices.memory import peak_bytes, usable_bytes

CPU = torch.device("cpu")
KIB = 1 << 10


def made(kib: int) -> torch.Tensor:
    return torch.zeros(kib * KIB, dtype=torch.uint8)


def one_after_another() -> None:
    for _ in range(3):
        made(4)


def at_once() -> None:
    _kept = [made(4) for _ in range(3)]


def views() -> None:
    whole = made(4)
    _parts = [whole[:KIB], whole.view(2, -1), whole.detach()]


def in_place() -> None:
    made(4).add_(1)


def emptied() -> None:
    first = made(4)
    first.set_()  # type: ignore[call-overload]
    made(4)


def a_sum() -> None:
    _sum = made(4) + made(4)


def nothing() -> None:
    pass


def test_the_peak_is_of_what_is_there_at_once() -> None:
    for kib, runs in {
        0: [nothing],
        4: [one_after_another, views, in_place, emptied],
        12: [at_once, a_sum],
    }.items():
        for run in runs:
            assert peak_bytes(run, CPU) == kib * KIB, run


def test_what_is_there_before_is_not_counted_and_may_live_on() -> None:
    before, after = made(4), []
    assert peak_bytes(lambda: after.append(before[:KIB] + 1), CPU) == KIB
    assert peak_bytes(after.clear, CPU) == 0


def test_an_error_is_passed_on_and_ends_the_counting() -> None:
    def fail() -> None:
        made(4)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        peak_bytes(fail, CPU)
    assert peak_bytes(lambda: made(2), CPU) == 2 * KIB


def test_some_memory_is_usable() -> None:
    assert usable_bytes(CPU) > 0
