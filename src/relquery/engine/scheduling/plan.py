"""What a policy sees and what it decides.

A policy is a pure function `(State, Memo) -> (Plan, Memo)`: it reads no clock, changes nothing
and knows no executor, so that the engine, a simulation and a test run the same one. `Memo` is
whatever the policy wants to remember; the loop hands it back unseen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
