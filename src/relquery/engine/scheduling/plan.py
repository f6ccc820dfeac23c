"""The view of a policy, its decisions, and expectations of relQueries.

A policy is a pure function `(State, Memo) -> (Plan, Memo)`: it reads no clock, changes nothing
and does not use the executor, so the engine, a simulation and a test can run the same policy.
`Memo` is whatever the policy wants to remember; the loop passes it back without looking at it.
A policy is not asked again while all requests decode and nobody waits: it has nothing to decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple, Protocol, runtime_checkable

from relquery.config import EngineConfig
from relquery.engine.block_pool import BlockPool
from relquery.engine.cost import LinearCost
from relquery.engine.requests.relquery import RelQuery
from relquery.engine.requests.request import Request, filled, spread

Memo = Any


@dataclass(frozen=True, slots=True, weakref_slot=True)
class State:
    """A read-only view of the engine before a step.

    now: seconds on the engine's clock. waiting: in order of arrival, preempted ones first.
    running: in order of admission. pool: for lookups only. relqueries: the open ones, by id.
    changed: relQueries that have arrived, ended, been worked on or otherwise changed since the last
        plan, in order; one that has ended has no open requests. All others are unchanged.
    moved: requests that have joined or left `waiting` since then. cache_changes: keys of
        blocks that have entered or left the cache; a key may occur more than once, and the block
        may be back.
    length_ratio: share of its limit that an
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
    length_ratio: float | None = None
    pace: float = 1.0


class Work(NamedTuple):
    """The further tokens of a request to compute in this step, in document order.

    hits: for a waiting request, the leading blocks of each of its pieces that are reused instead of
    computed: each is cached now, or filled by earlier work in the step. kept: for a request that
    ends with this step, the leading blocks of each piece that stay in the cache, while the states
    of the rest are dropped (paper 004, section 5.1); None if all are needed.
    """

    request: Request
    tokens: int
    hits: tuple[int, ...] = ()
    kept: tuple[int, ...] | None = None

    def filled(
        self, block_size: int, done: Sequence[int] | None = None
    ) -> Iterator[tuple[int, range]]:
        """Pieces, and which of their named blocks are full once the work is done, and were not.

        done: see `spread`.
        """
        for index, start, stop in spread(self.request, self.tokens, done):
            kept = None if self.kept is None else self.kept[index]
            yield index, filled(self.request, index, start, stop, block_size, kept)


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


Held = list[list[int | None]]
"""Blocks of each piece; None for a block that is only filled in this step."""


KEPT = 0.98
"""Weight of a step's seconds relative to the next step's."""


@dataclass(slots=True)
class Experience:
    """Counts of what an engine has seen so far, used to predict what comes.

    admitted: prompt tokens of admitted requests. computed: those of them that were not cached.
    limit: the most tokens that answers could have had. drawn: the tokens that they had.
    measured: seconds of steps. predicted: the cost model's seconds. Recent steps count most.
    """

    admitted: int = 0
    computed: int = 0
    limit: int = 0
    drawn: int = 0
    measured: float = 0.0
    predicted: float = 0.0

    def step(self, measured: float, predicted: float) -> None:
        """Record the measured and predicted seconds of a step."""
        self.measured = KEPT * self.measured + measured
        self.predicted = KEPT * self.predicted + predicted

    def admit(self, request: Request) -> None:
        """Record a request that was admitted for the first time."""
        self.admitted += request.prompt_tokens
        self.computed += request.prompt_tokens - (request.cached or 0)

    def answered(self, request: Request) -> None:
        """Record a request that has its answer."""
        self.limit += request.max_tokens
        self.drawn += len(request.output)

    @property
    def miss_ratio(self) -> float:
        """Share of prompt tokens that are computed; 1 as long as nothing is known."""
        return self.computed / self.admitted if self.admitted else 1.0

    @property
    def pace(self) -> float:
        """Measured seconds per predicted second of a step; 1 as long as nothing is known."""
        return self.measured / self.predicted if self.predicted else 1.0

    @property
    def length_ratio(self) -> float:
        """Share of its limit that an answer has; 1 as long as nothing is known."""
        return self.drawn / self.limit if self.limit else 1.0

    @property
    def usual_length(self) -> float | None:
        """The same, but None as long as nothing is known."""
        return self.length_ratio if self.limit else None


def forecast(
    order: Iterable[RelQuery],
    number: int,
    limits: EngineConfig,
    cost: LinearCost,
    experience: Experience,
    usual: float = 1.0,
) -> float:
    """Seconds until the last answer of a relQuery.

    order: the relQueries served before it, and then the relQuery itself. usual: share of its limit
    that the longest answer has, which decides how many steps it takes. Prompts are computed in
    this order, together with the decodes of all requests whose prompts are in the cache. If the
    cache is full, the next prompts start when all requests in it have been answered, as in
    Algorithm 1 of paper 003. Declared rows that have not come count as if they waited. Later
    arrivals that overtake it are not foreseen.
    """
    clock = level = longest = 0.0  # level: how full the cache is, of tokens or of requests
    for relquery in order:
        waiting, expected = len(relquery.waiting), relquery.expected
        prompts = float(relquery.waiting.lengths.sum()) + expected * relquery.mean_prompt
        begun = sum(each.prompt_tokens - each.computed for each in relquery.running)
        left = [max(1, each.max_tokens - len(each.output)) for each in relquery.running]
        answers = sum(left) + (waiting + expected) * relquery.output_limit
        own = max(1.0, usual * max(0, *left, relquery.output_limit if waiting or expected else 0))
        held = sum(each.length for each in relquery.running) + prompts
        count = len(left) + waiting + expected
        level += max(held / limits.cache_tokens, count / limits.max_num_seqs)
        longest = max(longest, own)
        rounds = max(0, ceil(level) - 1)
        if rounds:
            clock += (longest + (rounds - 1) * own) * cost.decode_intercept
            level, longest = level - rounds, own
        computed = prompts * experience.miss_ratio + max(0, begun)
        clock += cost.prefill_slope * computed
        clock += cost.decode_slope * answers * experience.length_ratio
        if relquery.id == number:
            return experience.pace * (clock + own * cost.decode_intercept)
    raise KeyError(number)
