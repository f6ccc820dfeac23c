"""What a user is told while loops are compiled, and Ctrl-C meanwhile."""

from __future__ import annotations

import signal
import sys
from itertools import count
from types import FrameType, SimpleNamespace

import pytest

from relquery.compilation import Progress, Watched


def ends(progress: Progress, depth: int) -> None:
    """Functions that call one another are compiled."""
    made = SimpleNamespace(data={"dispatcher": Watched(ends, targetoptions={})})
    for _ in range(depth):
        progress.on_start(made)
    for _ in range(depth):
        progress.on_end(made)


def test_compiling_is_told_at_once_and_then_every_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seconds = count(0, 3)
    progress = Progress(lambda: float(next(seconds)))
    for _ in range(3):
        ends(progress, 2)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "Compiling loops for this machine. This can take some minutes, once per installation.",
        "Compiled 4 functions in 12 seconds so far.",
    ]


def test_functions_of_others_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress()
    other = SimpleNamespace(data={"dispatcher": object()})
    progress.on_start(other)
    progress.on_end(other)
    assert not caplog.records


@pytest.mark.parametrize("place", ["_raw_object_cache_notify", "compile"])
def test_ctrl_c_while_compiling_is_never_lost(place: str) -> None:
    """What is raised in the first place, which LLVM calls, would be printed and forgotten."""
    pressed: list[str] = []

    def press(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == place and not pressed:
            pressed.append(place)
            signal.raise_signal(signal.SIGINT)

    compiling = Watched(lambda number: number + 1, targetoptions={"nopython": True})
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.setprofile(press)
    try:
        with pytest.raises(KeyboardInterrupt):
            compiling(1)
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, before)
    assert pressed == [place]
    assert compiling(1) == 2
