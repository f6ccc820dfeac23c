"""Hybrid prefilling (paper 004, section 4): a step's tokens in slices, its attention over all.

The network runs once for each slice, and the runs take turns, one layer at a time: a run continues
from its attention to the next layer's, where its keys and values are stored, and lets the others
catch up. So everything a network computes token by token, whatever its modules, only holds the
intermediate results of one slice, and keys and values are only needed for one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

T = TypeVar("T")
Wait = Callable[[], None]


def take_turns(runs: Sequence[Callable[[Wait], T]]) -> list[T | None]:
    """Results of all runs; each is called with a function that lets all other runs continue.

    They continue in the given order. A run that calls `leave` has no result.
    """
    from greenlet import GreenletExit, getcurrent, greenlet

    results: list[T | None] = [None] * len(runs)
    wait = getcurrent().switch

    def start(number: int) -> None:
        results[number] = runs[number](wait)

    turns = [greenlet(partial(start, number)) for number in range(len(runs))]
    try:
        while any(not turn.dead for turn in turns):
            for turn in turns:
                if not turn.dead:
                    turn.switch()
    finally:  # if a run has failed, the others' frames release what they hold
        for turn in turns:
            if not turn.dead:
                turn.throw(GreenletExit)
    return results


def leave() -> None:
    """End the run that calls it."""
    from greenlet import GreenletExit

    raise GreenletExit
