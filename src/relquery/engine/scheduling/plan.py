"""What a policy sees and what it decides.

A policy is a pure function `(State, Memo) -> (Plan, Memo)`: it reads no clock, changes nothing
and does not use the executor, so the engine, a simulation and a test can run the same policy.
`Memo` is whatever the policy wants to remember; the loop passes it back without looking at it.
A policy is not asked again while all requests decode and nobody waits: it has nothing to decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from relquery.config import EngineConfig
from relquery.engine.cache.blocks import BlockPool
from relquery.engine.request.progress import filled, spread
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request

Memo = Any


@dataclass(frozen=True, slots=True, weakref_slot=True)
class State:
    """A read-only view of the engine before a step.

    now: seconds on the engine's clock. waiting: in order of arrival, preempted ones first.
    running: in order of admission. pool: for lookups only. relqueries: the open ones, by id.
    changed: relQueries that have arrived, ended, been worked on or otherwise changed since the last
        plan, in order; one that has ended has no open requests. All others are unchanged.
    moved: requests that have joined or left `waiting` since then. cache_changes: keys of
        blocks that have entered or left the cache or the host's memory; a key may occur more than
        once, and the block may be back.
    host: the blocks in host memory, for lookups only. length_ratio: share of its limit that an
        answer has had on average; None as long as there was none. pace: seconds of a step by its
        predicted seconds.
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
    length_ratio: float | None = None
    pace: float = 1.0


class Work(NamedTuple):
    """How many further tokens of a request to compute in this step, in document order.

    hits: for a waiting request, the leading blocks of each of its pieces that are reused instead of
    computed: each is cached now, or filled by earlier work in the step. kept: for a request that
    ends with this step, the leading blocks of each piece that stay in the cache, while the states
    of the rest are dropped (paper 004, section 5.1); None if all are needed. loaded: for such a
    request, the blocks of each piece after the hits that are read from host memory instead of
    computed; () for none.
    """

    request: Request
    tokens: int
    hits: tuple[int, ...] = ()
    kept: tuple[int, ...] | None = None
    loaded: tuple[int, ...] = ()

    def filled(
        self, block_size: int, done: Sequence[int] | None = None
    ) -> Iterator[tuple[int, range]]:
        """Pieces, and which of their named blocks are full once the work is done, and were not.

        done: see `spread`.
        """
        request, size = self.request, block_size
        parts = {index: part for index, *part in spread(request, self.tokens, done)}
        for index, loaded in enumerate(self.loaded):
            if loaded and index not in parts:  # all of the piece is loaded
                parts[index] = [request.size(index)] * 2
        for index, (start, stop) in parts.items():
            loaded = self.loaded[index] if self.loaded else 0
            first = -(-start // size) - loaded if loaded else start // size
            kept = None if self.kept is None else self.kept[index]
            yield index, filled(request, index, first * size, stop, size, kept)


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: requests that lose their blocks first, then the work, in order of admission.

    ahead: what the next steps may do without asking the policy, as long as nobody else comes: all
    running requests go on, and these begin, in order, as seats become free. None if the policy is
    to be asked for each step.
    """

    work: tuple[Work, ...] = ()
    preempt: tuple[Request, ...] = ()
    ahead: tuple[Request, ...] | None = None


class Policy(Protocol):
    """Decides the next step."""

    def __call__(self, state: State, memo: Memo) -> tuple[Plan, Memo]: ...


@runtime_checkable
class Ordering(Protocol):
    """A memo that knows which relQueries come before which."""

    def order(self, state: State) -> Sequence[RelQuery]:
        """All open relQueries, the most urgent first."""

    def order_if_pressed(self, state: State, deadline: float) -> Sequence[RelQuery]:
        """Those with this deadline or an earlier one, in the order in which they would be served
        if all of them had to go first."""
