"""CIDRA: cached blocks moved to other positions in place (paper 002, section 5.5.1).

A move reads a block and writes it, rotated, to a block: to itself if nothing else needs it at its
position, otherwise to a fresh one. In the graph of blocks each target has one source. So a strongly
connected component is a simple cycle (usually of one block), and copies of a block hang from it
like a tree. Copies go first, from the leaves up, before their sources are overwritten. A cycle is
one batch, which is read completely before any of it is written.

CIDRA is kept for comparison with rotating queries, which moves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BATCH_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Move:
    """Block `source`, rotated by `turn` positions, becomes block `target`."""

    source: int
    target: int
    turn: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Moves whose sources are all read before any target is written."""

    moves: tuple[Move, ...]


def plan_batches(moves: Iterable[Move], limit: int = BATCH_BLOCKS) -> list[Batch]:
    """Batches of at most `limit` blocks, except for longer cycles, in an order that loses nothing.

    Targets must differ. Raises ValueError if two moves have one target.
    """
    into: dict[int, Move] = {}
    outgoing: dict[int, list[Move]] = defaultdict(list)
    for move in moves:
        if move.target in into:
            raise ValueError(f"block {move.target} is the target of two moves")
        into[move.target] = move
        outgoing[move.source].append(move)
    cycles = _find_cycles(into)
    in_cycle = {move.target for cycle in cycles for move in cycle}
    levels = _levels(into, outgoing, in_cycle)
    batches = [
        Batch(tuple(level[start : start + limit]))
        for level in levels
        for start in range(0, len(level), limit)
    ]
    return batches + _pack_cycles(cycles, limit)


def _find_cycles(into: dict[int, Move]) -> list[list[Move]]:
    cycles: list[list[Move]] = []
    seen: dict[int, int] = {}
    for start in into:
        block, path = start, []
        while block in into and block not in seen:
            seen[block] = start
            path.append(into[block])
            block = into[block].source
        if seen.get(block) == start and path and block in {move.target for move in path}:
            first = next(i for i, move in enumerate(path) if move.target == block)
            cycles.append(path[first:])
    return cycles


def _levels(
    into: dict[int, Move], outgoing: dict[int, list[Move]], in_cycle: set[int]
) -> list[list[Move]]:
    """The moves outside cycles, level by level: first those whose target no other move reads."""
    waits = {
        target: sum(move.target not in in_cycle for move in outgoing[target])
        for target in into
        if target not in in_cycle
    }
    levels: list[list[Move]] = []
    ready = [target for target, count in waits.items() if count == 0]
    while ready:
        levels.append([into[target] for target in ready])
        following = []
        for target in ready:
            source = into[target].source
            if source in waits:
                waits[source] -= 1
                if waits[source] == 0:
                    following.append(source)
        ready = following
    return levels


def _pack_cycles(cycles: Sequence[list[Move]], limit: int) -> list[Batch]:
    """Whole cycles, as many as fit in each batch; a longer one by itself."""
    batches: list[list[Move]] = []
    for cycle in sorted(cycles, key=len, reverse=True):
        if not batches or len(batches[-1]) + len(cycle) > limit:
            batches.append([])
        batches[-1] += cycle
    return [Batch(tuple(packed)) for packed in batches]
