"""What a policy sees and what it decides.

A policy is a pure function `(State, Memo) -> (Plan, Memo)`: it reads no clock, changes nothing
and knows no executor, so that the engine, a simulation and a test run the same one. `Memo` is
whatever the policy wants to remember; the loop hands it back unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple, Protocol, runtime_checkable

from relquery.config import EngineConfig
from relquery.engine.cache.blocks import BlockPool
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request

Memo = Any


@dataclass(frozen=True, slots=True, weakref_slot=True)
class State:
    """A read-only view of the engine before a step.

    now: seconds on the engine's clock. waiting: in order of arrival, preempted ones first.
    running: in order of admission. pool: for lookups only. relqueries: the open ones, by id.
    changed: those that have come, gone, been worked on or otherwise changed since the plan before,
        in order; one that has ended has nothing open. What is not among them is as it was.
    moved: requests that have joined `waiting` or left it since then, and cache_changes: keys of
        blocks that have come into the cache or the host's memory or gone from there; some perhaps
        more than once, or back.
    host: the blocks in host memory, for lookups only.
    """

    now: float
    waiting: Collection[Request]
    running: Collection[Request]
    limits: EngineConfig
    pool: BlockPool
    relqueries: Mapping[int, RelQuery] = field(default_factory=dict)
    changed: Collection[RelQuery] = ()
    moved: Sequence[Request] = ()
    cache_changes: Sequence[bytes] = ()
    host: BlockPool = field(default_factory=lambda: BlockPool(0))


class Work(NamedTuple):
    """How many further tokens of a request to compute in this step, in document order.

    hits: for a waiting request, the leading blocks of each of its pieces that are not computed
    but taken: each is cached now, or filled by work before this one in the step. kept: for one that
    ends with this step, the leading blocks that stay in the cache, while the states of the rest are
    forgotten (paper 004, section 5.1); None where all are needed. loaded: for such a one, the
    blocks behind the hits that are not computed but read from host memory.
    """

    request: Request
    tokens: int
    hits: tuple[int, ...] = ()
    kept: int | None = None
    loaded: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: requests that lose their blocks first, then the work, in order of admission."""

    work: tuple[Work, ...] = ()
    preempt: tuple[Request, ...] = ()


class Policy(Protocol):
    """Decides the next step."""

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]: ...


@runtime_checkable
class Ordering(Protocol):
    """A memo that knows which relQueries come before which."""

    def order(self, state: State) -> Sequence[RelQuery]:
        """All open relQueries, the most urgent first."""


class Draft:
    """A plan in the making: what the planned work leaves of tokens, seats and blocks.

    Blocks that the draft fills count as cached for the work after it, as they will be once the
    step runs, so that requests of one step share a prefix that none has computed before.
    """

    def __init__(self, state: State) -> None:
        self._limits, self._pool, self._host = state.limits, state.pool, state.host
        self.tokens = state.limits.max_num_batched_tokens
        self.seats = state.limits.max_num_seqs - len(state.running)
        self.blocks = state.pool.available
        self.work: list[Work] = []
        self._prompts = False
        self.preempt: list[Request] = []
        self._moves = state.limits.relocation == "cidra"
        self._filled: dict[bytes, int] = {}
        self._admitted: set[Request] = set()
        self._taken: set[int] = set()  # cached blocks that admitted requests rely on
        self._places: dict[int, int] = {}  # where this step moves blocks
        self._released: Counter[int] = Counter()

    def fork(self) -> Draft:
        """A draft that goes on from this one, and leaves it as it is."""
        other = copy(self)
        for name, kept in vars(self).items():
            if isinstance(kept, (list, set, dict)):
                setattr(other, name, copy(kept))
        return other

    def advance(self, request: Request) -> bool:
        """Plan work of a running request; False if the blocks do not suffice."""
        piece = request.pieces[-1]
        needed = self._blocks_for(len(piece.tokens) + len(request.output)) - len(piece.blocks)
        if needed > 0:
            if needed > self.blocks:
                return False
            self.blocks -= needed
        self._prompts |= not request.decoding
        self._commit(Work(request, min(self.tokens, request.length - request.computed)))
        return True

    def admit(self, request: Request, *, whole: bool = False) -> bool:
        """Plan the first work of a waiting request; False if it does not fit this step.

        Once is enough: asked again, nothing is added. whole: only if its prompt needs no further
        step, or alone would need several.
        """
        if request in self._admitted:
            return True
        if self.tokens <= 0 or self.seats <= 0:
            return False
        hits, found, unheld, places, copies = self._hits(request)
        served = [self._served(request, index, count) for index, count in enumerate(hits)]
        missing = request.length - sum(served)
        at_once = self._ends_at_once(request, missing)
        alone = self._prompts if at_once else whole
        if missing > self.tokens and self.work and alone:
            return False
        tokens = missing if at_once else min(self.tokens, missing)
        taken = sum(hits) - len(unheld) - copies
        kept, loaded = None, 0
        if at_once:
            # What nobody may ever read again takes no room: the rest of the last block, and
            # whatever the cache cannot hold.
            full = request.length // self._limits.block_size
            kept = max(sum(hits), min(full, taken + self.blocks))
            loaded = self._loaded(request, sum(hits))
            served[0] += loaded * self._limits.block_size
            tokens = request.length - served[0]
        # Any other request gets blocks for its whole prompt, so that prompts that cannot finish
        # together do not block one another half-way.
        needed = (self._blocks_of(request) if kept is None else kept) - taken
        if needed > self.blocks:
            return False
        self.blocks -= needed
        self.seats -= 1
        self._admitted.add(request)
        self._taken |= found
        self._places |= places
        self._prompts = True
        self._commit(Work(request, tokens, tuple(hits), kept, loaded), served)
        return True

    def evict(self, request: Request) -> None:
        """Plan the preemption of a running request without work in this plan."""
        self.preempt.append(request)
        self.seats += 1
        blocks = request.blocks
        self._released.update(blocks)
        self.blocks += sum(self._free(block) and block not in self._taken for block in set(blocks))

    def plan(self) -> Plan:
        """The finished plan."""
        return Plan(tuple(self.work), tuple(self.preempt))

    def _ends_at_once(self, request: Request, missing: int) -> bool:
        """Whether the step that begins a request gives its answer, so that it need hold nothing."""
        if not request.prefill_only or len(request.pieces) > 1:
            return False
        spent = self._limits.max_num_batched_tokens - self.tokens
        return missing <= max(self.tokens, (self._limits.max_input or 0) - spent)

    def _blocks_of(self, request: Request) -> int:
        return sum(self._blocks_for(request.size(i)) for i in range(len(request.pieces)))

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._limits.block_size)

    def _free(self, block: int) -> bool:
        """Whether nothing that this plan leaves running holds a block."""
        return self._pool.references(block) == (self._released[block] if self._released else 0)

    def _served(self, request: Request, index: int, hits: int) -> int:
        """Tokens of a piece in its first `hits` blocks."""
        return min(hits * self._limits.block_size, request.size(index))

    def _hits(self, request: Request) -> tuple[list[int], set[int], set[int], dict[int, int], int]:
        """How many blocks per piece the cache or this draft serves; those of the cache; of these,
        those that nothing else needs; where it moves them; and how many must be copied, as another
        request needs them at another position.
        """
        found: set[int] = set()
        unheld: set[int] = set()
        places: dict[int, int] = {}
        hits, copies = [0] * len(request.pieces), 0
        if not self._limits.prefix_caching:
            return hits, found, unheld, places, copies
        size = self._limits.block_size
        for index in range(len(hits)):
            for block, key in enumerate(request.keys(index, servable(request, index, size), size)):
                held = self._pool.lookup(key)
                place = request.place(index, block, size) if self._moves else 0
                if held is None and not self._fills(key, place):
                    break
                if held is not None:
                    free = self._free(held) and held not in self._taken and held not in unheld
                    if self._moves and places.get(held, self._place(held)) != place:
                        if free:
                            places[held] = place
                        else:
                            copies += 1
                    if free:
                        unheld.add(held)
                    found.add(held)
                hits[index] += 1
        return hits, found, unheld, places, copies

    def _loaded(self, request: Request, hits: int) -> int:
        """Blocks behind the hits of a prompt of one piece that the host has."""
        if not self._limits.prefix_caching or self._host.total == 0:
            return 0
        size = self._limits.block_size
        keys = (request.key(0, block, size) for block in range(hits, servable(request, 0, size)))
        return sum(1 for _ in takewhile(lambda key: self._host.lookup(key) is not None, keys))

    def _place(self, block: int) -> int:
        """Where a block is once the work planned so far is prepared."""
        return self._places.get(block, self._pool.place[block])

    def _fills(self, key: bytes, place: int) -> bool:
        """Whether work before fills the block; where states are moved, at this very place."""
        filled_at = self._filled.get(key)
        return filled_at is not None and (not self._moves or filled_at == place)

    def _commit(self, work: Work, done: Sequence[int] | None = None) -> None:
        size, request = self._limits.block_size, work.request
        loaded = work.loaded * size
        self.tokens -= work.tokens + loaded  # which takes room in the step as if it were computed
        self.work.append(work)
        if request.beside:
            computed = request.computed if done is None else sum(done)
            if computed + work.tokens == request.length:
                self.tokens -= request.beside
        if done is None and len(request.pieces) == 1 and request.decoding and request.length % size:
            return  # most work is like that, and fills no block
        if self._limits.prefix_caching:
            for index, start, stop in spread(request, work.tokens, done):
                for block in filled(request, index, start - loaded, stop, size, work.kept):
                    place = request.place(index, block, size)
                    self._filled.setdefault(request.key(index, block, size), place)


def cached_tokens(request: Request, limits: EngineConfig, pool: BlockPool) -> list[int]:
    """Per piece of a waiting request, the leading tokens that the cache would serve now."""
    size = limits.block_size
    found = []
    for index in range(len(request.pieces)):
        blocks = range(servable(request, index, size) if limits.prefix_caching else 0)
        keys = (request.key(index, block, size) for block in blocks)
        hits = sum(1 for _ in takewhile(lambda key: pool.lookup(key) is not None, keys))
        found.append(min(hits * size, request.size(index)))
    return found


def servable(request: Request, index: int, block_size: int) -> int:
    """Leading blocks of a piece that a cache may serve: the last token is always computed."""
    if request.pieces[index].closed:
        return request.named_blocks(index, block_size)
    return (request.size(index) - 1) // block_size


def spread(
    request: Request, tokens: int, done: Sequence[int] | None = None
) -> Iterator[tuple[int, int, int]]:
    """(piece, start, stop) of the next tokens to compute, in document order.

    done: tokens of each piece that need not be computed; by default those that are.
    """
    if len(request.pieces) == 1:
        start = request.pieces[0].done if done is None else done[0]
        stop = min(start + tokens, request.length)
        if stop > start:
            yield 0, start, stop
        return
    for index, piece in enumerate(request.pieces):
        start = piece.done if done is None else done[index]
        stop = min(start + tokens, request.size(index))
        if stop > start:
            yield index, start, stop
            tokens -= stop - start


def filled(
    request: Request, index: int, start: int, stop: int, block_size: int, kept: int | None = None
) -> range:
    """Named blocks of a piece that are full once start..stop are computed; kept: see Work."""
    whole = request.pieces[index].closed and stop == request.size(index)
    end = -(-stop // block_size) if whole else stop // block_size
    return range(start // block_size, end if kept is None else min(end, kept))
