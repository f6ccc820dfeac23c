"""Who sees what in a step, as tasks and visits for the attention kernels.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from relquery._native import Seen, grow_attention, plan_attention
from relquery.arrays import Float32s, Int64s
from relquery.engine.executor import Chunk, Segment
from relquery.model.chunks import is_ordered, numbered

ROWS = 64
"""Rows of a task at most: a token has one for each head that shares its keys."""
NO_SHIFT, OWN_SHIFTS = -1, -2
"""Shift numbers of a visit: none, or each token its own."""
_NONE = np.empty(0, dtype=np.int64)


@dataclass(slots=True, eq=False)
class Plan:
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
    """Plans for heads of one kind; see plan_step.

    has_windows: whether layers have a window, so that distances matter. turns: for each rotary
    embedding, cosines and sines of shifts.
    """

    share: bool
    by_shift: bool
    heads: int
    kv_heads: int
    threads: int
    has_windows: bool
    turns: Callable[[Int64s], Sequence[tuple[Float32s, Float32s]]] = lambda shifts: ()

    def plan(self, chunks: Sequence[Chunk], room: int = 0) -> Plan:
        """By numbers in the place of positions, where these do not tell who sees whom."""
        if not is_ordered(chunks):
            chunks, room = numbered(chunks), 0
        return self._plan(chunks, room)

    def seen(self, chunks: Sequence[Chunk], plan: Plan | None = None) -> Seen:
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

    def _plan(self, chunks: Sequence[Chunk], room: int) -> Plan:
        return plan_step(
            chunks,
            share=self.share,
            by_shift=self.by_shift,
            heads=self.heads,
            kv_heads=self.kv_heads,
            threads=self.threads,
            room=room,
        )


def plan_step(
    chunks: Sequence[Chunk],
    *,
    share: bool,
    by_shift: bool,
    heads: int,
    kv_heads: int,
    threads: int,
    room: int = 0,
) -> Plan:
    """Plan the attention of a step.

    chunks: in packed order: token i of the batch is token i of their concatenation. share:
    whether what several chunks see is read once, instead of for each. by_shift: whether a span is
    shared only by chunks that use it at the same position. threads: to have work for. room: steps
    for which the plan can grow, if each chunk is one token and all it attends to is in its chain.
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
        by_shift,
        max(1, min(ROWS * kv_heads // heads, -(-tokens * kv_heads // enough))),
        -(-enough // kv_heads),
    )
    return Plan(slots, *made, room)
