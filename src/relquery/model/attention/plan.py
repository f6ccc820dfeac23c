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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relquery._native import grow_attention, plan_attention
from relquery.arrays import Int64s
from relquery.engine.executor import Chunk, Segment
from relquery.model.kernels.attention.arguments import ROWS


@dataclass(slots=True, eq=False)
class Plan:
    """The arrays that relquery.model.kernels.attention.arguments describes, and counts.

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

    def grow(self, slots: Int64s) -> bool:
        """Make this the plan of a step whose chunks each follow one of this step's by one token,
        and write to these slots (chunks,). False if it cannot be."""
        if self.room == 0:
            return False
        if not grow_attention(self.tasks, self.visits, self.ends, self.at, self.slots, slots):
            return False
        self.room -= 1
        return True


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
