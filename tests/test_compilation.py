"""What a user is told while loops are compiled."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

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
