"""A step's chunks, how they are cut, chosen and numbered, and the plan of their attention: who sees
what, as tasks and visits for the kernels.

What a chunk attends to in its own chain is a path of slots, and the paths of a batch form a trie:
chunks whose paths have the same beginning share a part of them. Sorted by path, the chunks that
share a part are neighbours. So a task takes neighbouring tokens, and each of its visits a part of
the cache that a range of its tokens sees: what they share is read once, and nothing is merged
(Hydragen and cascade inference share prefixes by merging partial results). Only an independent
span that chunks far apart use at other positions than its own becomes tasks of its own, whose
results are merged with the others.

A plan is made once per step and used for all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from relquery._native import Seen, grow_attention, plan_attention
from relquery.arrays import Float32s, Int64s, Slots
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
    """How many scratch slots the step needs."""
    return int(np.count_nonzero(np.concatenate([chunk.writes for chunk in chunks]) >= SCRATCH))


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
    copies = []
    for chunk in chunks:
        context, count = [], 0
        for segment in chunk.context:
            if segment.shift:  # before all others
                context.append(segment._replace(start=-segment.shift - len(segment.slots)))
            else:
                context.append(segment._replace(start=count))
                count += len(segment.slots)
        copies.append(chunk._replace(context=tuple(context), position=count))
    return copies


def chunks_at(chunks: Sequence[Chunk], rows: Sequence[int]) -> list[Chunk]:
    """Some of the chunks' tokens, as chunks that attend to what is before them.

    rows: numbers of these tokens among all, ascending. Their keys and values are stored already.
    """
    placed: list[Chunk] = []
    first, position = 0, 0
    for chunk in chunks:
        until = first + len(chunk.tokens)
        while position < len(rows) and rows[position] < until:
            start = position
            while (
                position < len(rows)
                and rows[position] < until
                and rows[position] - rows[start] == position - start
            ):
                position += 1
            low, high = rows[start] - first, rows[position - 1] + 1 - first
            before = (Segment(chunk.writes[:low], chunk.position),) if low else ()
            placed.append(
                chunk._replace(
                    tokens=chunk.tokens[low:high],
                    position=chunk.position + low,
                    context=(*chunk.context, *before),
                    writes=chunk.writes[low:high],
                )
            )
        first = until
    return placed


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
        )


def _own_chain(chunk: Chunk) -> tuple[tuple[Segment, ...], int, Slots]:
    """The segments before a chunk's chain; where this begins, and its slots with the chunk's."""
    if chunk.context:
        last = chunk.context[-1]
        if last.shift == 0 and last.start + len(last.slots) == chunk.position:
            return chunk.context[:-1], last.start, np.concatenate((last.slots, chunk.writes))
    return chunk.context, chunk.position, chunk.writes


ROWS = 64
"""Rows of a task at most: a token has one for each head that shares its keys."""
NO_SHIFT, OWN_SHIFTS = -1, -2
"""Shift numbers of a visit: none, or each token its own."""
_NONE = np.empty(0, dtype=np.int64)


@dataclass(slots=True, eq=False)
class AttentionPlan:
    """The arrays that AttentionArguments in native/kernels/arguments.hpp describes, and counts.

    shift_values: (shift numbers,) by how many positions keys are used later than computed.
    places: partial results, 0 for none. pairs: query-key pairs, about. ends: (chunks,) where each
    path ends among the keys. room: keys that each path can still grow by.
    """

    slots: Int64s
    tasks: Int64s
    visits: Int64s
    tokens: Int64s
    at: Int64s
    shifts: Int64s
    targets: Int64s
    positions: Int64s
    merged: Int64s
    shift_values: Int64s
    places: int
    pairs: int
    ends: Int64s
    room: int

    @property
    def bytes(self) -> int:
        """Of its arrays."""
        held = (getattr(self, each.name) for each in fields(self))
        return sum(each.nbytes for each in held if isinstance(each, np.ndarray))

    def grow(self, slots: Int64s) -> bool:
        """Make this the plan of a step whose chunks each follow one of this step's by one token,
        and write to these slots (chunks,). False if it cannot be."""
        if self.room == 0:
            return False
        if not grow_attention(self.tasks, self.visits, self.ends, self.at, self.slots, slots):
            return False
        self.room -= 1
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """A planner for heads of one kind; see plan_step.

    has_windows: whether layers have a window, so that distances matter. turns: for each rotary
    embedding, cosines and sines of shifts.
    """

    share: bool
    heads: int
    kv_heads: int
    threads: int
    has_windows: bool
    turns: Callable[[Int64s], Sequence[tuple[Float32s, Float32s]]] = lambda shifts: ()

    def plan(self, chunks: Sequence[Chunk], room: int = 0) -> AttentionPlan:
        """By numbers in the place of positions, where these do not tell who sees whom."""
        if not is_ordered(chunks):
            chunks, room = numbered(chunks), 0
        return self._plan(chunks, room)

    def seen(self, chunks: Sequence[Chunk], plan: AttentionPlan | None = None) -> Seen:
        """Who sees what, for kernels. plan: if it is made already."""
        plan = plan or self.plan(chunks)
        rows = keys = _NONE
        if self.has_windows and not is_ordered(chunks):
            told = self._plan(chunks, 0)  # the same, by the chunks' own positions
            rows, keys = told.at, told.positions
        return Seen(
            plan.slots,
            plan.tasks,
            plan.visits,
            plan.tokens,
            plan.at,
            plan.shifts,
            plan.targets,
            plan.positions,
            plan.merged,
            plan.shift_values,
            plan.places,
            rows,
            keys,
            self.turns(plan.shift_values) if len(plan.shift_values) else (),
        )

    def _plan(self, chunks: Sequence[Chunk], room: int) -> AttentionPlan:
        return plan_step(
            chunks,
            share=self.share,
            heads=self.heads,
            kv_heads=self.kv_heads,
            threads=self.threads,
            room=room,
        )


def plan_step(
    chunks: Sequence[Chunk],
    *,
    share: bool,
    heads: int,
    kv_heads: int,
    threads: int,
    room: int = 0,
) -> AttentionPlan:
    """Plan the attention of a step.

    chunks: in packed order: token i of the batch is token i of their concatenation. share:
    whether what several chunks see is read once, instead of for each. threads: to have work for.
    room: steps for which the plan can grow, if each chunk is one token and all it attends to is in
    its chain.
    """
    shifted: list[tuple[int, Segment]] = []
    parts: list[Int64s] = []  # of the step's keys: the chunks' paths, then spans
    starts: list[int] = []  # the position of each part's first key
    later = np.zeros(room, dtype=np.int64)
    placed: list[tuple[int, int, int, int]] = []
    tokens = 0
    for number, chunk in enumerate(chunks):
        first = len(parts)
        for each in chunk.context:
            if each.shift:
                shifted.append((number, each))
            else:
                parts.append(each.slots)
                starts.append(each.start)
        parts.append(chunk.writes)
        starts.append(chunk.position)
        placed.append((len(chunk.tokens), chunk.position, first, len(parts)))
        tokens += len(chunk.tokens)
        if room:
            parts.append(later)
            starts.append(chunk.position + 1)
    parts += [each.slots for _, each in shifted]
    starts += [each.start for _, each in shifted]
    enough = 2 * threads  # tasks and heads, so that no thread waits long for another
    slots = np.concatenate(parts)
    made = plan_attention(
        slots,
        [len(part) for part in parts],
        starts,
        placed,
        [(number, each.shift) for number, each in shifted],
        share,
        max(1, min(ROWS * kv_heads // heads, -(-tokens * kv_heads // enough))),
        -(-enough // kv_heads),
    )
    return AttentionPlan(slots, *made, room)
