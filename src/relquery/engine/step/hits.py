"""The cached blocks that a step's new requests reuse, moved to the positions they need."""

from __future__ import annotations

from relquery.config import EngineConfig
from relquery.engine.cache.blocks import BlockPool
from relquery.engine.cache.cidra import Move, plan_batches
from relquery.engine.executor import Executor
from relquery.engine.scheduling.plan import Work

Held = list[list[int | None]]
"""Blocks of each piece; None for a block that is only filled in this step."""


class StepHits:
    """Hits of one step. Hold the hits of all work before anything is allocated, then copy.

    moves: block moves to carry out before the step computes. originals: blocks that were
    copied and are held until then.
    """

    def __init__(self, pool: BlockPool, limits: EngineConfig) -> None:
        self._pool, self._limits = pool, limits
        self._before: dict[int, int] = {}
        self._copies: list[tuple[list[int | None], int, Move, int]] = []
        self.moves: list[Move] = []
        self.originals: list[int] = []

    def hold(self, work: Work) -> Held:
        """Hold a waiting request's hits."""
        request, size = work.request, self._limits.block_size
        held: Held = []
        for index, count in enumerate(work.hits):
            blocks = self._pool.lookups(request.keys(index, count, size))
            held.append(blocks)
            self._pool.take_all(block for block in blocks if block is not None)
            if self._limits.relocation == "cidra":
                for number, block in enumerate(blocks):
                    if block is not None:
                        self._bring(blocks, number, request.place(index, number, size))
        return held

    def copy(self) -> None:
        """Copy blocks for requests that need them at another position."""
        for blocks, number, move, place in self._copies:
            fresh = self._pool.allocate(1)
            assert fresh is not None, "the policy planned more blocks than there are"
            self.originals.append(move.source)
            self.moves.append(Move(move.source, fresh[0], move.turn))
            self._pool.place[fresh[0]] = place
            blocks[number] = fresh[0]

    def relocate(self, executor: Executor) -> None:
        """Carry out the moves. If that fails, the keys of all moved blocks are withdrawn."""
        try:
            if self.moves:
                executor.relocate(plan_batches(self.moves), self._limits.block_size)
        except BaseException:
            for move in self.moves:
                self._pool.withdraw(move.target)
            raise
        finally:
            self._pool.release(self.originals)
            self.originals = []

    def _bring(self, blocks: list[int | None], number: int, place: int) -> None:
        """Move a held block to a position, or copy it if others need it where it is."""
        block = blocks[number]
        assert block is not None
        if self._pool.place[block] == place:
            return
        before = self._before.setdefault(block, self._pool.place[block])
        move = Move(block, block, place - before)
        if self._pool.references(block) == 1:
            self.moves.append(move)
            self._pool.place[block] = place
        else:
            self._copies.append((blocks, number, move, place))
