"""Bounds on processor time that hold on slow machines and beside other processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

USUAL = 0.065  # seconds of the reference work on a machine of the usual pace


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if the body takes more processor time than this on a machine of the usual pace.

    The pace is measured on a fixed piece of work before and after the body, and the slower of the
    two counts: a neighbour may slow both down, never the body alone for long.
    """
    before = pace()
    began = time.process_time()
    yield
    taken = time.process_time() - began
    slowest = max(before, pace())
    assert taken < seconds * slowest, f"{taken:.2f} s; {seconds:g} s allowed, times {slowest:.2f}"


def pace() -> float:
    """Processor time of a fixed piece of work over the usual one, at least 1; least of three."""
    return max(1.0, min(_once() for _ in range(3)) / USUAL)


def _once() -> float:
    began = time.process_time()
    seen: dict[tuple[int, str], list[int]] = {}
    for number in range(120_000):
        seen.setdefault((number % 977, str(number % 1013)), []).append(number)
    np.sort(np.random.default_rng(0).random(600_000))
    return time.process_time() - began
