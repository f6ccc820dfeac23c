"""What a policy sees and what it decides.

A policy is a pure function `(State, Memo) -> (Plan, Memo)`: it reads no clock, changes nothing
and knows no executor, so that the engine, a simulation and a test run the same one. `Memo` is
whatever the policy wants to remember; the loop hands it back unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from relquery.config import EngineConfig
from relquery.engine.blocks import BlockPool
from relquery.engine.request import Request

Memo = Any


@dataclass(frozen=True, slots=True)
class State:
    """A read-only view of the engine before a step.

    now: seconds on the engine's clock. waiting: in order of arrival, preempted ones first.
    running: in order of admission. pool: for lookups only.
    """

    now: float
    waiting: Sequence[Request]
    running: Sequence[Request]
    limits: EngineConfig
    pool: BlockPool


@dataclass(frozen=True, slots=True)
class Work:
    """How many further tokens of a request to compute in this step.

    hits: for a waiting request, its leading full blocks that are not computed but taken: each is
    cached now, or filled by work before this one in the step.
    """

    request: Request
    tokens: int
    hits: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: requests that lose their blocks first, then the work, in order of admission."""

    work: tuple[Work, ...] = ()
    preempt: tuple[Request, ...] = ()


class Policy(Protocol):
    """Decides the next step."""

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]: ...


class Draft:
    """A plan in the making: what the planned work leaves of tokens, seats and blocks.

    Blocks that the draft fills count as cached for the work after it, as they will be once the
    step runs, so that requests of one step share a prefix that none has computed before.
    """

    def __init__(self, state: State) -> None:
        self._limits, self._pool = state.limits, state.pool
        self.tokens = state.limits.max_num_batched_tokens
        self.seats = state.limits.max_num_seqs - len(state.running)
        self.blocks = state.pool.available
        self.work: list[Work] = []
        self.preempt: list[Request] = []
        self._filled: set[bytes] = set()
        self._taken: set[int] = set()
        self._released: Counter[int] = Counter()

    def advance(self, request: Request) -> bool:
        """Plan work of a running request; False if the blocks do not suffice."""
        tokens = min(self.tokens, request.length - request.computed)
        needed = max(0, self._blocks_for(request.computed + tokens) - len(request.blocks))
        if needed > self.blocks:
            return False
        self.blocks -= needed
        self._commit(Work(request, tokens), request.computed)
        return True

    def admit(self, request: Request) -> bool:
        """Plan the first work of a waiting request; False if it does not fit this step."""
        if self.tokens <= 0 or self.seats <= 0:
            return False
        hits, unheld = self._hits(request)
        start = hits * self._limits.block_size
        tokens = min(self.tokens, request.length - start)
        # An admitted request gets blocks for its whole prompt, so that prompts that cannot
        # finish together do not block one another half-way.
        needed = self._blocks_for(request.length) - hits + len(unheld)
        if needed > self.blocks:
            return False
        self.blocks -= needed
        self.seats -= 1
        self._taken |= unheld
        self._commit(Work(request, tokens, hits), start)
        return True

    def evict(self, request: Request) -> None:
        """Plan the preemption of a running request without work in this plan."""
        self.preempt.append(request)
        self._released.update(request.blocks)
        self.blocks += sum(self._released[b] == self._pool.references(b) for b in request.blocks)

    def plan(self) -> Plan:
        """The finished plan."""
        return Plan(tuple(self.work), tuple(self.preempt))

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._limits.block_size)

    def _hits(self, request: Request) -> tuple[int, set[int]]:
        """Full blocks that the cache or this draft serves, and those no request holds yet."""
        unheld: set[int] = set()
        if not self._limits.prefix_caching:
            return 0, unheld
        full = (request.length - 1) // self._limits.block_size
        for index in range(full):
            key = request.key(index, self._limits.block_size)
            block = self._pool.lookup(key)
            if block is None and key not in self._filled:
                return index, unheld - self._taken
            if block is not None and self._pool.references(block) == 0:
                unheld.add(block)
        return full, unheld - self._taken

    def _commit(self, work: Work, start: int) -> None:
        self.tokens -= work.tokens
        self.work.append(work)
        if self._limits.prefix_caching:
            size = self._limits.block_size
            for index in range(start // size, (start + work.tokens) // size):
                self._filled.add(work.request.key(index, size))
