"""Hybrid prefilling (paper 004, section 4): a step's tokens in slices, its attention over all.

The network runs once for each slice, and the runs take turns, a layer at a time: one goes on from
its attention to the next layer's, where its keys and values are stored, and lets the others catch
up. So all that a network computes token by token, whatever modules it is made of, holds the
intermediate results of one slice; and keys and values need to be kept for one layer alone.
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
"""A slice may be longer by one part in so many where that spares a slice: however few its tokens, a
slice reads all weights of the network."""


def longest_slice(size: int) -> int:
    """Tokens of the longest slice where `size` tokens are asked for."""
    return size + size // LEEWAY


def cut(chunks: Sequence[Chunk], size: int) -> list[list[Chunk]]:
    """The chunks of a step in slices of `size` tokens, in order, the last of what is left.

    All equal and a little longer where they are fewer then (see LEEWAY).
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
    """Results of all runs; each is called with a function that lets every other one go on.

    They go on in the order given. A run that calls `leave` has no result.
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
    finally:  # where one has failed, the others' frames let go of what they hold
        for turn in turns:
            if not turn.dead:
                turn.throw(GreenletExit)
    return results


def leave() -> None:
    """End the run that calls it."""
    raise GreenletExit


def _parts(chunk: Chunk, room: int, size: int) -> Iterator[Chunk]:
    """A chunk in parts, of which the first fits into `room` tokens and the others into `size`."""
    length = len(chunk.tokens)
    if length <= (room or size):
        yield chunk
        return
    before, start, slots = _own_chain(chunk)
    done = len(slots) - length
    for first, stop in pairwise((0, *range(room or size, length, size), length)):
        # A view of one array: each part attends to nearly all that stands before the chunk's end.
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
            # The first part of a chunk goes on after the others: all have attended to the layer
            # before when the next one's keys take its place.
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
