"""The cache blocks that requests hold, and their work as chunks that read and write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from relquery.arrays import Slots
from relquery.config import EngineConfig
from relquery.engine.cache.blocks import BlockPool
from relquery.engine.executor import SCRATCH, Chunk, Segment
from relquery.engine.request.pieces import Keep
from relquery.engine.request.progress import spread
from relquery.engine.request.request import Draw, Request
from relquery.engine.scheduling.plan import Work
from relquery.engine.step.ending import draft_chunks, label_chunks
from relquery.engine.step.hits import Held
from relquery.engine.step.offload import Offload
from relquery.engine.step.shelf import Shelf
from relquery.interrupts import postponed

_RUNS = count(1)
"""Numbers of runs of decode steps, of all engines."""


class Holdings:
    """Gives requests blocks from a pool and takes them back."""

    def __init__(
        self, pool: BlockPool, limits: EngineConfig, offload: Offload, shelf: Shelf
    ) -> None:
        self._pool, self._limits, self._offload, self._shelf = pool, limits, offload, shelf
        self._own = 0

    def begin_step(self) -> None:
        """Take back all scratch slots."""
        self._own = 0

    def scratch(self, count: int) -> Slots:
        """Slots for this step only: they cannot be found later, and no block is held for them."""
        first = SCRATCH + self._own
        self._own += count
        return np.arange(first, first + count)

    def admit(self, work: Work, hits: Held) -> None:
        """Give a request the cached blocks of its prompt, and fresh ones for the rest of it."""
        request, size = work.request, self._limits.block_size
        for index, (piece, found) in enumerate(zip(request.pieces, hits, strict=True)):
            if found:
                piece.hold(self._with_filled(request, index, found), size)
            piece.done = min(len(found) * size, request.size(index))
        for index, piece in enumerate(request.pieces):
            self._hold(request, index, None if work.kept is None else work.kept[index])
            if work.loaded:
                piece.done = min(piece.done + work.loaded[index] * size, request.size(index))
            missing = request.size(index) - len(piece.slots)
            if work.kept is not None and missing > 0:  # these are not kept
                piece.slots = np.concatenate((piece.slots, self.scratch(missing)))

    def chunks(self, work: Work) -> list[Chunk]:
        """Work of a running request as chunks, one for each piece that it touches.

        Missing blocks are allocated, and the blocks that it fills can be found by their keys.
        """
        request, size = work.request, self._limits.block_size
        is_running = not work.hits  # else others may count on the block that it fills
        if is_running and request.output and request.decoding and len(request.pieces) == 1:
            return [self._decode(request)]
        self._hold(request, len(request.pieces) - 1, None if work.kept is None else work.kept[-1])
        if self._limits.prefix_caching and not request.alone:
            for index, blocks in work.filled(size):
                self._publish(request, index, blocks)
        chunks: list[Chunk] = []
        for index, start, stop in spread(request, work.tokens):
            piece = request.pieces[index]
            own = (Segment(piece.slots[:start], piece.start),) if start else ()
            ends = index == len(request.pieces) - 1 and stop == request.size(index)
            chunks.append(
                Chunk(
                    request=request.id,
                    tokens=request.tokens(index, start, stop),
                    position=piece.start + start,
                    context=(*self._before(request, index), *own),
                    writes=piece.slots[start:stop],
                    draw=_next_draw(request) if ends else None,
                    # The first chunk loads for all: none before it reads what is loaded.
                    loads=None if chunks else self._offload.loads(work),
                    saves=self._offload.saves(work, index, start, stop),
                )
            )
        if request.trie is not None and chunks[-1].draw is not None:
            chunks[-1:] = label_chunks(chunks[-1], request.trie, self.scratch)
        elif request.drafting and chunks[-1].draw is not None:
            assert request.drafts is not None
            chunks[-1:] = draft_chunks(chunks[-1], request.drafts, self.scratch)
        return chunks

    def continue_slots(self, requests: Sequence[Request], slots: Slots) -> bool:
        """Replace the slots (requests,) of decoded tokens by those of the tokens after them.

        False, and nothing is done, if there are too few blocks for all. See _decode.
        """
        size = self._limits.block_size
        begun = np.flatnonzero((slots + 1) % size == 0).tolist()
        if len(begun) > self._pool.available:
            return False
        slots += 1
        if begun:
            with postponed():
                for number in begun:
                    (piece,) = requests[number].pieces
                    if piece.done >= len(piece.slots):
                        self._hold(requests[number], 0)
                    slots[number] = piece.slots[piece.done]
        return True

    def withdraw(self, request: Request) -> None:
        """Withdraw the keys of a request's blocks that are not computed or loaded yet."""
        for index, piece in enumerate(request.pieces):
            loaded, size = self._offload.blocks(request, index), self._limits.block_size
            if loaded or piece.done < request.size(index):
                done = -(-piece.done // size) - loaded if loaded else piece.done // size
                for block in piece.blocks[done:]:
                    self._pool.withdraw(block)

    def release(self, request: Request) -> None:
        """Take all blocks back. Those that it filled while decoding can be found from now on."""
        size = self._limits.block_size
        is_shared = self._limits.prefix_caching and not request.alone
        if len(request.pieces) == 1 and request.output and is_shared:
            first, stop = request.prompt_tokens // size, request.pieces[0].done // size
            self._publish(request, 0, range(first, min(stop, len(request.blocks))))
        self._shelf.put(request)
        for piece in request.pieces:
            if piece.keep:
                self._pool.keep(piece.blocks, Keep(piece.keep))
        for blocks, keep in request.kept_blocks(size):
            self._pool.keep(blocks, keep)
        self._pool.release(request.blocks)
        for piece in request.pieces:
            piece.let_go()

    def _decode(self, request: Request) -> Chunk:
        """A chunk with the newest token of a prompt without spans. Most chunks are like this."""
        (piece,), output = request.pieces, request.output
        last = len(piece.tokens) + len(output) - 1
        if last >= len(piece.slots):
            self._hold(request, 0)
        if piece.run == 0:
            piece.run = next(_RUNS)
        slots, start = piece.slots, piece.start
        return Chunk(
            request.id,
            np.array(output[-1:], np.int32),
            start + last,
            (Segment(slots[:last], start),),
            slots[last : last + 1],
            _next_draw(request),
            run=piece.run,
        )

    def _publish(self, request: Request, index: int, numbers: range) -> None:
        """Make blocks that this step fills findable by their keys."""
        if not numbers:
            return
        size, blocks = self._limits.block_size, request.pieces[index].blocks
        keys = request.keys(index, numbers.stop, size)[numbers.start :]
        filled_blocks = blocks[numbers.start : numbers.stop]
        self._pool.publish_all(keys, filled_blocks, request.places(index, numbers, size))

    def _before(self, request: Request, index: int) -> Iterator[Segment]:
        """The pieces before one that its tokens attend to."""
        piece = request.pieces[index]
        for other in request.pieces[piece.first : index]:
            is_seen = not other.hidden or other.chain == piece.chain
            if len(other.tokens) and is_seen:
                slots = other.slots[: len(other.tokens)]
                yield Segment(slots, other.start, other.origin - piece.origin)

    def _with_filled(self, request: Request, index: int, found: Sequence[int | None]) -> list[int]:
        """The blocks found for a piece; in place of None, those that earlier work of this step
        fills, which are held now."""
        keys = request.keys(index, len(found), self._limits.block_size)
        filled = [key for key, block in zip(keys, found, strict=True) if block is None]
        blocks = [block for block in self._pool.lookups(filled) if block is not None]
        assert len(blocks) == len(filled), "the policy counted on a block that no work filled"
        self._pool.take_all(blocks)
        rest = iter(blocks)
        return [next(rest) if block is None else block for block in found]

    def _hold(self, request: Request, index: int, kept: int | None = None) -> None:
        """Allocate the blocks that a piece is missing."""
        piece, size = request.pieces[index], self._limits.block_size
        whole = -(-request.size(index) // size) if kept is None else kept
        missing = whole - len(piece.blocks)
        if missing > 0:
            fresh = self._pool.allocate(missing)
            assert fresh is not None, "the policy planned more blocks than there are"
            piece.hold(fresh, size)


def _next_draw(request: Request) -> Draw:
    draw = request.draw
    if draw.temperature == 0 and not request.rules.labels:
        return draw
    # One stream per request: a draw depends on the seed and on how many tokens came before it,
    # not on what else is in the batch.
    seed = hash((draw.seed, len(request.output)))
    return replace(
        draw, seed=seed, allowed=request.rules.allowed_next(request.output) or draw.allowed
    )
