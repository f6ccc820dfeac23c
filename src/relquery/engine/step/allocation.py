"""The cache blocks that requests hold, and their work as chunks that read and write them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import cast

import numpy as np

from relquery.arrays import Int64s, Slots
from relquery.config import EngineConfig
from relquery.engine.block_pool import BlockPool
from relquery.engine.executor import SCRATCH, Chunk, Drawn, Failure, Segment
from relquery.engine.requests.pieces import Keep
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Draw, Request, spread
from relquery.engine.scheduling.plan import Held, Plan, Work
from relquery.engine.step.answer import draft_chunks, label_chunks
from relquery.engine.step.shelf import Shelf
from relquery.interrupts import postponed
from relquery.prompt import TokenLogprob

_RUNS = count(1)
"""Numbers of runs of decode steps, of all engines."""


class BlockAllocator:
    """Gives requests blocks from a pool and takes them back."""

    def __init__(self, pool: BlockPool, limits: EngineConfig, shelf: Shelf) -> None:
        self._pool, self._limits, self._shelf = pool, limits, shelf
        self._own = 0

    def begin_step(self) -> None:
        """Take back all scratch slots."""
        self._own = 0

    def scratch(self, count: int) -> Slots:
        """Slots for this step only: they cannot be found later, and no block is held for them."""
        first = SCRATCH + self._own
        self._own += count
        return np.arange(first, first + count)

    def take(self, work: Work) -> Held:
        """Hold the cached blocks of a waiting request's hits."""
        held: Held = []
        for index, blocks in enumerate(work.hits):
            keys = work.request.keys(index, blocks, self._limits.block_size)
            held.append(self._pool.lookups(keys))
            self._pool.take_all(block for block in held[-1] if block is not None)
        return held

    def admit(self, work: Work, hits: Held) -> None:
        """Give a request the cached blocks of its prompt, and fresh ones for the rest of it."""
        request, size = work.request, self._limits.block_size
        for index, (piece, hit) in enumerate(zip(request.pieces, hits, strict=True)):
            if hit:
                piece.hold(self._with_filled(request, index, hit), size)
            piece.done = min(len(hit) * size, request.size(index))
        for index, piece in enumerate(request.pieces):
            self._hold(request, index, None if work.kept is None else work.kept[index])
            missing = request.size(index) - len(piece.slots)
            if work.kept is not None and missing > 0:  # these are not kept
                piece.slots = np.concatenate((piece.slots, self.scratch(missing)))

    def chunks(self, work: Work) -> list[Chunk]:
        """Work of a running request as chunks, one for each piece that it touches.

        Missing blocks are allocated, and the blocks that it fills can be found by their keys.
        """
        request, size = work.request, self._limits.block_size
        # If it is not running, others may count on the block that it fills.
        is_decode = work.tokens == 1 and not work.hits and request.output and request.decoding
        if is_decode and len(request.pieces) == 1:
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
            draws = request.prompt_draws(start, stop) + ((_next_draw(request),) if ends else ())
            chunks.append(
                Chunk(
                    request=request.id,
                    tokens=request.tokens(index, start, stop),
                    position=piece.start + start,
                    context=(*self._before(request, index), *own),
                    writes=piece.slots[start:stop],
                    draw=draws[-1] if draws else None,
                    inner=draws[:-1],
                    adapter=request.adapter.number,
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
        """Withdraw the keys of a request's blocks that are not computed yet."""
        for index, piece in enumerate(request.pieces):
            if piece.done < request.size(index):
                for block in piece.blocks[piece.done // self._limits.block_size :]:
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
        piece, output = request.pieces[0], request.output
        last = piece.done
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
            adapter=request.adapter.number,
        )

    def _publish(self, request: Request, index: int, numbers: range) -> None:
        """Make blocks that this step fills findable by their keys."""
        if not numbers:
            return
        size, blocks = self._limits.block_size, request.pieces[index].blocks
        keys = request.keys(index, numbers.stop, size)[numbers.start :]
        self._pool.publish_all(keys, blocks[numbers.start : numbers.stop])

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


class DecodeRun:
    """The latest step, if it is repeated as long as nobody comes, waits or ends.

    Any policy would plan the same again: each running request decodes one token. Planning, and
    describing each token to the executor, is a twentieth of a step of 64; most of that is waiting
    for objects that the step has driven out of the processor's caches, so few are touched here.
    """

    def __init__(
        self, plan: Plan, chunks: Sequence[Chunk], relqueries: Mapping[int, RelQuery]
    ) -> None:
        """chunks: of the latest step, one for each work of its plan; see can_begin.

        relqueries: of the requests, by group.
        """
        self.requests = [work.request for work in plan.work]
        self.relqueries = [relqueries[request.group] for request in self.requests]
        self.context = sum(chunk.context_tokens for chunk in chunks)
        """Cached tokens that the latest step attended to."""
        self._pieces = [request.pieces[0] for request in self.requests]
        self._outputs = [request.output for request in self.requests]
        self._ends = [request.rules.end for request in self.requests]
        # An answer may end at this many tokens; with stop rules or a grammar, at any token.
        self._mosts = [
            request.max_tokens if request.rules.is_free and request.draw.matcher is None else 0
            for request in self.requests
        ]
        self._logprobs = [
            (number, request.logprobs)
            for number, request in enumerate(self.requests)
            if request.logprobs is not None
        ]
        self._slots = np.concatenate([chunk.writes for chunk in chunks])

    @property
    def tokens(self) -> list[int]:
        """Each request's newest token, which the next step computes."""
        return [output[-1] for output in self._outputs]

    def advance(self, allocator: BlockAllocator) -> Int64s | None:
        """Slots (requests,) for the newest tokens; None if there are too few blocks for all.

        Valid until the next call.
        """
        if not allocator.continue_slots(self.requests, self._slots):
            return None
        self.context += len(self.requests)
        return self._slots

    def take_in(self, drawn: Sequence[Drawn | None]) -> list[int]:
        """Add a step's tokens to the outputs. Returns the requests whose token was not added,
        because it may end the answer or force others.

        drawn: see Executor.follow.
        """
        rest = []
        tokens = cast("Sequence[int]", drawn)
        if self._logprobs:
            tokens = [
                drawn_one.token if isinstance(drawn_one, TokenLogprob) else drawn_one
                for drawn_one in tokens
            ]
        given = zip(tokens, self._outputs, self._ends, self._mosts, self._pieces, strict=True)
        for number, (token, output, end, most, piece) in enumerate(given):
            piece.done += 1
            is_failed = isinstance(token, Failure)
            if is_failed or token < 0 or token in end or len(output) + 1 >= most:
                rest.append(number)
            else:
                output.append(token)
                self.relqueries[number].drawn_tokens += 1
        if self._logprobs:
            self._keep_logprobs(drawn, rest)
        return rest

    def _keep_logprobs(self, drawn: Sequence[Drawn | None], rest: Collection[int]) -> None:
        """Keep those of tokens that were added. rest: the requests whose token was not."""
        others = set(rest)
        for number, kept in self._logprobs:
            told = drawn[number]
            if number not in others and isinstance(told, TokenLogprob):
                kept.append(told)


def can_begin(plan: Plan, chunks: Sequence[Sequence[Chunk]]) -> bool:
    """Whether each work of a step was one decode whose draw does not change from token to token."""
    return all(
        len(of_work) == 1
        and of_work[0].run
        and of_work[0].draw is work.request.draw
        and not work.request.draw.weigh
        for work, of_work in zip(plan.work, chunks, strict=True)
    )
