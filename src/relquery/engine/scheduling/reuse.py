"""Blocks that requests reuse, and a plan being built with the tokens, seats and blocks left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Self

from relquery.config import EngineConfig
from relquery.engine.block_pool import BlockPool
from relquery.engine.requests.request import Request, servable
from relquery.engine.scheduling.plan import Plan, State, Work


@dataclass(slots=True)
class Hits:
    """The blocks that a request can reuse.

    counts: leading blocks per piece. found: those of them that are in the cache now. unheld: those
    of the found blocks that nothing else needs.
    """

    counts: list[int]
    found: set[int] = field(default_factory=set)
    unheld: set[int] = field(default_factory=set)

    @property
    def blocks(self) -> int:
        """All of them."""
        return sum(self.counts)

    @property
    def taken(self) -> int:
        """Blocks that take no extra room, because another request already holds them."""
        return self.blocks - len(self.unheld)


class PrefixMatcher:
    """The cache as the work planned so far will leave it.

    Blocks that planned work fills count as cached for later work, because they will be once the
    step runs. So requests of one step share a prefix that none of them has computed before.
    """

    def __init__(self, limits: EngineConfig, pool: BlockPool) -> None:
        self._limits, self._pool = limits, pool
        self._filled: set[bytes] = set()
        self._taken: set[int] = set()  # cached blocks that admitted requests rely on
        self._released: Counter[int] = Counter()

    def fork(self) -> Self:
        """A copy that can be changed without changing this one."""
        other = copy(self)
        other._filled, other._taken = self._filled.copy(), self._taken.copy()
        other._released = self._released.copy()
        return other

    def hits(self, request: Request) -> Hits:
        """The blocks that a request could reuse now."""
        hits, size = Hits([0] * len(request.pieces)), self._limits.block_size
        if not self._limits.prefix_caching or request.alone:
            return hits
        for index in range(len(hits.counts)):
            keys = request.keys(index, servable(request, index, size), size)
            held = self._pool.lookups(keys)
            for number in range(_first(None, held), len(held)):
                if held[number] is None and keys[number] not in self._filled:
                    del held[number:]
                    break
            hits.counts[index] = len(held)
            blocks = {block for block in held if block is not None}
            hits.found |= blocks
            hits.unheld |= self._free_of(blocks - self._taken)
        return hits

    def take(self, hits: Hits) -> None:
        """Reserve the blocks that a request reuses."""
        self._taken |= hits.found

    def fill(self, keys: Iterable[bytes]) -> None:
        """Note that work fills blocks with these keys."""
        self._filled.update(keys)

    def release(self, blocks: Iterable[int]) -> int:
        """Release blocks; returns how many become free."""
        blocks = list(blocks)
        self._released.update(blocks)
        return sum(self._free(block) and block not in self._taken for block in set(blocks))

    def _free_of(self, blocks: set[int]) -> set[int]:
        """Those blocks that `_free` says yes to."""
        if self._released:
            return {block for block in blocks if self._free(block)}
        return self._pool.unheld(blocks)

    def _free(self, block: int) -> bool:
        """Whether no request that keeps running under this plan holds a block."""
        return self._pool.references(block) == (self._released[block] if self._released else 0)


def _first(wanted: object, items: Sequence[object]) -> int:
    """Where an item is first; the length if it is nowhere."""
    return items.index(wanted) if wanted in items else len(items)


def cached_tokens(request: Request, limits: EngineConfig, pool: BlockPool) -> list[int]:
    """Per piece of a waiting request, the leading tokens that the cache would serve now."""
    size = limits.block_size
    counts = []
    for index in range(len(request.pieces)):
        blocks = servable(request, index, size) if limits.prefix_caching else 0
        hits = _first(None, pool.lookups(request.keys(index, blocks, size)))
        counts.append(min(hits * size, request.size(index)))
    return counts


class Draft:
    """A plan being built. tokens, seats, blocks: how many are left."""

    def __init__(self, state: State) -> None:
        self._limits = state.limits
        self.tokens = state.limits.max_num_batched_tokens
        self.seats = state.limits.max_num_seqs - len(state.running)
        self.blocks = state.pool.available
        self.work: list[Work] = []
        self.preempt: list[Request] = []
        self._admitted: set[Request] = set()
        self._prompts = False
        self._reuse = PrefixMatcher(state.limits, state.pool)

    def fork(self) -> Self:
        """A copy that can be changed without changing this draft."""
        other = copy(self)
        other.work, other.preempt = self.work.copy(), self.preempt.copy()
        other._admitted, other._reuse = self._admitted.copy(), self._reuse.fork()
        return other

    def advance(self, request: Request) -> bool:
        """Plan work of a running request; False if there are not enough blocks."""
        piece, drawn = request.pieces[-1], len(request.output)
        tokens = len(piece.tokens) + drawn
        if tokens > len(piece.slots):
            needed = self.missing(request)
            if needed > self.blocks:
                return False
            self.blocks -= needed
        if drawn and tokens - piece.done == 1 and len(request.pieces) == 1:
            # The usual case: a decode step. What it fills can be found when the request ends.
            self.tokens -= 1
            self.work.append(Work(request, 1))
            return True
        self._prompts |= not request.decoding
        self._commit(Work(request, min(self.tokens, request.length - request.computed)))
        return True

    def missing(self, request: Request) -> int:
        """Blocks that a running request still needs for its tokens so far.

        In the engine it has those of its prompt; vLLM gives them as it computes the prompt.
        """
        piece = request.pieces[-1]
        tokens = len(piece.tokens) + len(request.output)
        if tokens <= len(piece.slots):
            return 0
        return self._blocks_for(tokens) - len(piece.blocks)

    def admit(self, request: Request, *, whole: bool = False) -> bool:
        """Plan the first work of a waiting request; False if it does not fit this step.

        Calling this again adds nothing. whole: only if the prompt fits in this step, or would need
        several steps even on its own.
        """
        if request in self._admitted:
            return True
        if self.tokens <= 0 or self.seats <= 0:
            return False
        hits = self._reuse.hits(request)
        served = self._served(request, hits.counts)
        missing = request.length - sum(served)
        at_once = self._ends_at_once(request, missing)
        alone = self._prompts if at_once else whole
        if missing > self.tokens and self.work and alone:
            return False
        if at_once:
            work = self._only_work(request, hits)
        else:
            work = Work(request, min(self.tokens, missing), tuple(hits.counts))
        # A request that continues gets blocks for its whole prompt, so that prompts that cannot
        # finish together do not block one another half-way.
        wanted = self._blocks_of(request) if work.kept is None else sum(work.kept)
        needed = wanted - hits.taken
        if needed > self.blocks:
            return False
        self.blocks -= needed
        self.seats -= 1
        self._admitted.add(request)
        self._reuse.take(hits)
        self._prompts = True
        self._commit(work, served)
        return True

    def evict(self, request: Request) -> None:
        """Plan the preemption of a running request without work in this plan."""
        self.preempt.append(request)
        self.seats += 1
        self.blocks += self._reuse.release(request.blocks)

    def plan(self, ahead: tuple[Request, ...] | None = None) -> Plan:
        """The finished plan."""
        return Plan(tuple(self.work), tuple(self.preempt), ahead)

    def _ends_at_once(self, request: Request, missing: int) -> bool:
        """Whether a request's first step gives its answer, so that it need not hold blocks."""
        if not request.prefill_only:
            return False
        spent = self._limits.max_num_batched_tokens - self.tokens
        return missing <= max(self.tokens, (self._limits.max_input or 0) - spent)

    def _only_work(self, request: Request, hits: Hits) -> Work:
        """The work of a request that ends in this step.

        States that will never be read again take no room: the rest of the last block, and whatever
        does not fit in the cache.
        """
        room, kept = hits.taken + self.blocks - hits.blocks, []
        for index, count in enumerate(hits.counts):
            missing = request.named_blocks(index, self._limits.block_size) - count
            more = max(0, min(missing, room))
            kept.append(count + more)
            room -= more
        served = sum(self._served(request, hits.counts))
        return Work(request, request.length - served, tuple(hits.counts), tuple(kept))

    def _blocks_of(self, request: Request) -> int:
        return sum(self._blocks_for(request.size(i)) for i in range(len(request.pieces)))

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._limits.block_size)

    def _served(self, request: Request, hits: Sequence[int]) -> list[int]:
        """Tokens of each piece in so many leading blocks."""
        size = self._limits.block_size
        return [min(count * size, request.size(index)) for index, count in enumerate(hits)]

    def _commit(self, work: Work, done: Sequence[int] | None = None) -> None:
        size, request = self._limits.block_size, work.request
        self.tokens -= work.tokens
        self.work.append(work)
        if request.beside:
            computed = request.computed if done is None else sum(done)
            if computed + work.tokens == request.length:
                self.tokens -= request.beside
        if self._limits.prefix_caching and not request.alone:
            for index, blocks in work.filled(size, done):
                if blocks:
                    self._reuse.fill(request.keys(index, blocks.stop, size)[blocks.start :])
