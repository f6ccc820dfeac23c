"""Ctrl-C at any line of the engine's code changes no answer, and no block is lost by it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from tests.engine.harness import Harness

PROMPTS = [range(7), range(7), range(20), [1, (2, 3, 4, 0, 1), 2]]


@contextmanager
def ctrl_c_at(line: int) -> Iterator[list[int]]:
    """Ctrl-C after so many lines of the engine's code. Yields a list with the lines so far."""
    lines = [0]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if "/relquery/engine/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    traced, before = sys.gettrace(), signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(traced)
        signal.signal(signal.SIGINT, before)


def run(line: int) -> tuple[list[list[int]], int]:
    """Answers of an engine that is interrupted at a line, and how many lines there were."""
    harness = Harness(cache_tokens=40, max_num_batched_tokens=12)
    requests = [harness.submit(prompt) for prompt in PROMPTS]
    finished = []
    with ctrl_c_at(line) as lines:
        while any(request.finish is None for request in requests):
            try:
                finished += harness.engine.step()
            except KeyboardInterrupt:
                continue
    assert not harness.engine.running
    assert not harness.engine.waiting
    harness.check()
    assert harness.engine.pool.held == 0
    finished += harness.engine.step()  # what the last step has not returned
    assert len({one.id for one in finished}) == len(finished)
    return [request.output for request in requests], lines[0]


@pytest.mark.parametrize("every", [211, pytest.param(7, marks=pytest.mark.long)])
def test_an_interrupt_at_any_line_changes_no_answer(every: int) -> None:
    expected, lines = run(0)
    assert lines > 1_000
    for line in range(1, lines, every):
        assert run(line)[0] == expected, line
