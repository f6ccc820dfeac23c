"""The parts that an engine is given: a clock, and an executor that does all computing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, log
from typing import NamedTuple, Protocol

import numpy as np

from relquery.arrays import Int64s, Slots, TokenIds
from relquery.engine.cost import LinearCost
from relquery.engine.requests.request import Draw
from relquery.prompt import TokenLogprob


class Clock(Protocol):
    """Tells the time in seconds from an arbitrary origin."""

    def now(self) -> float:
        """Seconds, never decreasing."""


class RealClock:
    """The operating system's monotonic clock."""

    def now(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.perf_counter()


class SteppedClock(Clock, Protocol):
    """A clock on which a simulated step takes as long as it is said to."""

    def advance(self, seconds: float) -> None:
        """Let a step of `seconds` (not negative) pass."""


class PacedClock(RealClock):
    """Real time, in which a step lasts until its predicted seconds have passed.

    What the caller did since the last step counts as part of the next: a real machine's steps also
    include the time of its scheduler. Where that alone took longer, nothing is waited for, and the
    delay is not made up for later. since: when the oldest open request
    arrived; idle time before that does not count.
    """

    def __init__(self, since: Callable[[], float] = lambda: -inf) -> None:
        self._since = since
        self._end = self.now()

    def advance(self, seconds: float) -> None:
        """Sleep until the step has taken `seconds`. A signal's handler may end the sleep by an
        exception; the step then ended there."""
        now = self.now()
        due = max(self._end, min(self._since(), now)) + seconds
        if due <= now:
            self._end = now
            return
        try:
            time.sleep(due - now)
        finally:
            # A sleep that lasted too long is made up for by the next step.
            self._end = min(due, self.now())


class VirtualClock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Seconds since the simulation began."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let `seconds` (not negative) pass."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._now += seconds


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a draw. It ends that draw's request alone."""

    error: Exception


@dataclass(frozen=True, slots=True)
class DrawnTokens:
    """The tokens of several draws of a chunk, with log-probabilities."""

    tokens: tuple[TokenLogprob, ...]
    """Of each, in order."""


Drawn = int | TokenLogprob | tuple[float, ...] | DrawnTokens | Failure
"""The result of a chunk's draws: a token id, for a draw with `logprobs` with its log-probabilities;
or the log-probabilities of the allowed tokens, or of the tokens drawn, draw by draw."""

NOT_FINITE = -1
"""What is drawn from logits that are not finite numbers."""

SCRATCH = 1 << 30
"""Slots from this number on, without gaps, are scratch slots of the step. They hold the keys and
values of one layer at a time, and nothing afterwards (paper 004, section 5.1). Only later chunks in
the step may read them."""


class Segment(NamedTuple):
    """A run of cached tokens that a chunk attends to.

    slots: (tokens,) cache slots. start: position of the first token when it was computed.
    shift: where these positions begin in the chunk's own positions: a span's place in its chain.
    """

    slots: Slots
    start: int = 0
    shift: int = 0


class Chunk(NamedTuple):
    """Some tokens of one request, to be computed in one step.

    tokens: (n,) ids; position: of the first, in its chain. context: segments before the chunk, all
    attended to by each of its tokens. writes: (n,) slots that receive the chunk's keys and
    values; the chunk attends to itself causally. Slots that one chunk of a step writes may be
    in another's context: all chunks' keys and values are written before any are read.
    draw: how to choose or weigh the token after the chunk; None if no token is needed. inner: how
    to weigh the tokens after the chunk's earlier tokens, in order, ending before the last token.
    run: not 0 for a chunk of one token without spans and inner draws. Of chunks with
    the same number, each at the position after the other's, the second attends to what the first
    attends to and writes. No other run of any engine has the number.
    adapter: the number of the one that its tokens are computed with, 0 for none.
    """

    request: int
    tokens: TokenIds
    position: int
    context: tuple[Segment, ...]
    writes: Slots
    draw: Draw | None = None
    inner: tuple[Draw, ...] = ()
    run: int = 0
    adapter: int = 0

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The draws of its last tokens, in order."""
        return (*self.inner, self.draw) if self.draw else ()

    @property
    def context_tokens(self) -> int:
        """Tokens before the chunk that it attends to."""
        return sum(len(segment.slots) for segment in self.context)


def seconds_of(chunks: Sequence[Chunk], cost: LinearCost) -> float:
    """Predicted seconds of a step with these chunks."""
    prompts = decodes = context = 0
    for chunk in chunks:
        tokens = len(chunk.tokens)
        if tokens == 1 and chunk.context:
            decodes += 1
        else:
            prompts += tokens
        for segment in chunk.context:
            context += len(segment.slots)
    return cost.seconds(prompts, decodes, context)


def join_drawn(drawn: Sequence[Drawn]) -> Drawn:
    """The joined result of one chunk's draws; if there are several, all of them weigh tokens, or
    all have log-probabilities."""
    if len(drawn) == 1:
        return drawn[0]
    failed = [each for each in drawn if isinstance(each, Failure)]
    if failed:
        return failed[0]
    if NOT_FINITE in drawn:
        return NOT_FINITE
    if told := tuple(each for each in drawn if isinstance(each, TokenLogprob)):
        return DrawnTokens(told)
    return tuple(log for each in drawn if isinstance(each, tuple) for log in each)


def drawn_by_chunk(found: Sequence[Drawn], chunks: Sequence[Chunk]) -> list[Drawn | None]:
    """Each chunk's result, or None without a draw. found: of all draws, in order."""
    if len(found) == len(chunks) and not any(chunk.inner or not chunk.draw for chunk in chunks):
        return list(found)
    drawn = iter(found)
    by_chunk = [list(islice(drawn, len(chunk.draws))) for chunk in chunks]
    return [join_drawn(given) if given else None for given in by_chunk]


class Executor(Protocol):
    """Computes chunks. The engine owns which slots mean what; the executor owns their content."""

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        """Compute all chunks as one batch; returns each chunk's draw, or None without one."""

    def follow(self, tokens: Sequence[int], slots: Slots) -> list[Drawn | None] | None:
        """Compute the step in which each of the last step's chunks, all of which have runs, is
        followed by the next of its run, with its draw; returns the same as `execute`.

        tokens, slots: (chunks,) of the new ones. None if they must be given as chunks.
        """


class SimulatedExecutor:
    """Lets a cost model's durations pass on a clock, and draws tokens from a function.

    answer: (request id, position of the new token) -> token id. If only some tokens are allowed,
    the number picks one of them, modulo their count. If tokens are weighed, that one is twice as
    likely as any other. If log-probabilities are asked for, a drawn token's probability is a half,
    and those of the smallest other ids are a quarter, an eighth and so on.
    """

    def __init__(
        self,
        clock: SteppedClock,
        cost: LinearCost | None = None,
        answer: Callable[[int, int], int] = lambda request, position: 0,
    ) -> None:
        self.clock = clock
        self.cost = cost or LinearCost()
        self._answer = answer
        self._last: Sequence[Chunk] = ()

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        """Let the predicted duration of the batch pass."""
        self._last = chunks
        self.clock.advance(seconds_of(chunks, self.cost))
        return [self._drawn(chunk) for chunk in chunks]

    def follow(self, tokens: Sequence[int], slots: Slots) -> list[Drawn | None] | None:
        """See Executor."""
        given = zip(self._last, tokens, slots.tolist(), strict=True)
        return self.execute([_after(*each) for each in given])

    def _drawn(self, chunk: Chunk) -> Drawn | None:
        if chunk.inner:
            return join_drawn([self._draw(chunk, draw) for draw in chunk.draws])
        return self._draw(chunk, chunk.draw) if chunk.draw else None

    def _draw(self, chunk: Chunk, draw: Draw) -> Drawn:
        try:
            token = self._choose(chunk, draw)
        except Exception as error:
            return Failure(error)
        if draw.logprobs is None or not isinstance(token, int):
            return token
        others = [each for each in range(draw.logprobs + 1) if each != token]
        top = [(each, -index * log(2)) for index, each in enumerate([token, *others], 1)]
        return TokenLogprob(token, -log(2), tuple(top[: draw.logprobs]))

    def _choose(self, chunk: Chunk, draw: Draw) -> int | tuple[float, ...]:
        token = self._answer(chunk.request, chunk.position + len(chunk.tokens))
        if draw.matcher is not None:
            return self._match(draw.matcher.allowed(), token, chunk)
        if not draw.allowed:
            return token
        count = len(draw.allowed)
        if draw.weigh:
            return tuple(log((1 + (i == token % count)) / (count + 1)) for i in range(count))
        return draw.allowed[token % count]

    def _match(self, allowed: Int64s, token: int, chunk: Chunk) -> int:
        """The token after a chunk, of those (n,) that a matcher allows."""
        return int(allowed[token % len(allowed)])


def _after(chunk: Chunk, token: int, slot: int) -> Chunk:
    """The chunk that follows one in its run."""
    (seen,) = chunk.context
    return chunk._replace(
        tokens=np.array([token], np.int32),
        position=chunk.position + 1,
        context=(seen._replace(slots=np.concatenate((seen.slots, chunk.writes))),),
        writes=np.array([slot]),
    )
