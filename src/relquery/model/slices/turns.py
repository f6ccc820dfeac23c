"""Hybrid prefilling (paper 004, section 4): a step's tokens in slices, its attention over all.

The network runs once for each slice, and the runs take turns, one layer at a time: a run continues
from its attention to the next layer's, where its keys and values are stored, and lets the others
catch up. So everything a network computes token by token, whatever its modules, only holds the
intermediate results of one slice, and keys and values are only needed for one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet

from relquery.arrays import Slots
from relquery.engine.executor import Chunk, Segment

T = TypeVar("T")
Wait = Callable[[], None]

LEEWAY = 32
"""A slice may be longer by one part in this many if that saves a slice, because even a short slice
reads all weights of the network."""


def longest_slice(size: int) -> int:
    """Tokens of the longest slice if slices of `size` tokens are requested."""
    return size + size // LEEWAY


def cut(chunks: Sequence[Chunk], size: int) -> list[list[Chunk]]:
    """The chunks of a step in slices of `size` tokens, in order; the last may be shorter.

    Slices are equal and a little longer if that makes them fewer (see LEEWAY).
    """
    total = sum(len(chunk.tokens) for chunk in chunks)
    size = max(size, -(-total // -(-total // longest_slice(size))))
    slices: list[list[Chunk]] = [[]]
    room = size
    for chunk in chunks:
        for part in _parts(chunk, room, size):
            if room == 0:
                slices.append([])
                room = size
            slices[-1].append(part)
            room -= len(part.tokens)
    return slices


def take_turns(runs: Sequence[Callable[[Wait], T]]) -> list[T | None]:
    """Results of all runs; each is called with a function that lets all other runs continue.

    They continue in the given order. A run that calls `leave` has no result.
    """
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
    raise GreenletExit


def _parts(chunk: Chunk, room: int, size: int) -> Iterator[Chunk]:
    """A chunk in parts: the first fits into `room` tokens, the others into `size`."""
    length = len(chunk.tokens)
    if length <= (room or size):
        yield chunk
        return
    before, start, slots = _own_chain(chunk)
    done = len(slots) - length
    for first, stop in pairwise((0, *range(room or size, length, size), length)):
        # A view of one array: each part attends to nearly everything before the chunk's end.
        own = (Segment(slots[: done + first], start),) if done + first else ()
        drawn = length - len(chunk.draws)  # the first token with a draw
        draws = chunk.draws[max(0, first - drawn) : max(0, stop - drawn)]
        yield chunk._replace(
            tokens=chunk.tokens[first:stop],
            position=chunk.position + first,
            context=(*before, *own),
            writes=chunk.writes[first:stop],
            draw=draws[-1] if draws else None,
            inner=draws[:-1],
            # A chunk's first part continues after the others: all have attended to the previous
            # layer when the next layer's keys replace its keys.
            loads=None if first else chunk.loads,
            saves=None if chunk.saves is None else chunk.saves[first:stop],
        )


def _own_chain(chunk: Chunk) -> tuple[tuple[Segment, ...], int, Slots]:
    """The segments before a chunk's chain; where this begins, and its slots with the chunk's."""
    if chunk.context:
        last = chunk.context[-1]
        if last.shift == 0 and last.start + len(last.slots) == chunk.position:
            return chunk.context[:-1], last.start, np.concatenate((last.slots, chunk.writes))
    return chunk.context, chunk.position, chunk.writes
