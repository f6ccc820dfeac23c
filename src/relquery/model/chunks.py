"""The chunks of a step: what they say together, and how they are cut, chosen and numbered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from relquery.arrays import Int64s, Slots
from relquery.engine.executor import SCRATCH, Chunk, Segment

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


def positions_of(chunks: Sequence[Chunk]) -> Int64s:
    """Of all tokens."""
    first = np.array([chunk.position for chunk in chunks], dtype=np.int64)
    counts = np.array([len(chunk.tokens) for chunk in chunks])
    if (counts == 1).all():
        return first
    before = np.cumsum(counts) - counts
    return np.repeat(first - before, counts) + np.arange(counts.sum())


def wanted_of(chunks: Sequence[Chunk]) -> list[int]:
    """The tokens of a batch whose logits are drawn from."""
    wanted: list[int] = []
    end = 0
    for chunk in chunks:
        end += len(chunk.tokens)
        if chunk.inner:
            wanted.extend(range(end - 1 - len(chunk.inner), end))
        elif chunk.draw is not None:
            wanted.append(end - 1)
    return wanted


def own_slots(chunks: Sequence[Chunk]) -> int:
    """How many scratch slots the step needs for what it computes or loads."""
    loaded = [chunk.loads.slots for chunk in chunks if chunk.loads is not None]
    written = [chunk.writes for chunk in chunks]
    return int(np.count_nonzero(np.concatenate((*loaded, *written)) >= SCRATCH))


def is_ordered(chunks: Sequence[Chunk]) -> bool:
    """Whether each chunk's positions come after those of all that it attends to."""
    return all(
        segment.start + segment.shift + len(segment.slots) <= chunk.position
        for chunk in chunks
        for segment in chunk.context
    )


def numbered(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Chunks whose positions are numbers in the order of their contexts.

    By their positions the kernels know what a token sees. So a token that attends to something at a
    later position (an argument in the middle of a module, paper 001) needs others.
    """
    found = []
    for chunk in chunks:
        context, count = [], 0
        for segment in chunk.context:
            if segment.shift:  # before all others
                context.append(segment._replace(start=-segment.shift - len(segment.slots)))
            else:
                context.append(segment._replace(start=count))
                count += len(segment.slots)
        found.append(chunk._replace(context=tuple(context), position=count))
    return found


def chunks_at(chunks: Sequence[Chunk], rows: Sequence[int]) -> list[Chunk]:
    """Some of the chunks' tokens, as chunks that attend to what is before them.

    rows: numbers of these tokens among all, ascending. Their keys and values are stored already.
    """
    found: list[Chunk] = []
    first, at = 0, 0
    for chunk in chunks:
        until = first + len(chunk.tokens)
        while at < len(rows) and rows[at] < until:
            start = at
            while at < len(rows) and rows[at] < until and rows[at] - rows[start] == at - start:
                at += 1
            low, high = rows[start] - first, rows[at - 1] + 1 - first
            before = (Segment(chunk.writes[:low], chunk.position),) if low else ()
            found.append(
                chunk._replace(
                    tokens=chunk.tokens[low:high],
                    position=chunk.position + low,
                    context=(*chunk.context, *before),
                    writes=chunk.writes[low:high],
                )
            )
        first = until
    return found


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
