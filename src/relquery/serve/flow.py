"""A job's answers in the event loop, on their way to one client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol

from relquery.backends.local.asking import Piece
from relquery.backends.local.batches import Sink
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer


class Job(Sink, Protocol):
    """One of the jobs that a flow is made of."""

    def leave(self) -> None:
        """What has no answer will get none."""


class Part(NamedTuple):
    """What has come of one prompt: a piece of its answer, or the answer."""

    at: int
    piece: Piece | None = None
    answer: Answer | None = None


class Flow:
    """A Sink in the event loop, which one task reads.

    size: prompts. dropped: called when the reader leaves before the end. latency: None before the
    end. broken: what broke the job.
    """

    def __init__(self, size: int, dropped: Callable[[Flow], None]) -> None:
        self.size = size
        self.latency: Latency | None = None
        self.broken: BaseException | None = None
        self._dropped = dropped
        self._parts: deque[Part] = deque()
        self.shares: Sequence[Job] = ()
        """The jobs that it is made of."""
        self._ended = 0
        self._over = False
        self._waiter: asyncio.Future[None] | None = None

    def piece(self, index: int, piece: Piece) -> None:
        """See Sink."""
        self._parts.append(Part(index, piece=piece))
        self._wake()

    def add(self, index: int, answer: Answer) -> None:
        """See Sink."""
        self._parts.append(Part(index, answer=answer))
        self._wake()

    def end(self, latency: Latency | None, error: BaseException | None = None) -> None:
        """See Sink. It ends with the last of its jobs, or the first that breaks."""
        self._ended += 1
        self.latency, self.broken = latency or self.latency, self.broken or error
        self._over = self._ended >= len(self.shares) or self.broken is not None
        self._wake()

    async def some(self) -> list[Part]:
        """All that has come since the last call, at least one part; nothing at the end.

        Raises what broke the job, once all that came before has been given.
        """
        while not self._parts and not self._over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        parts = list(self._parts)
        self._parts.clear()
        if not parts and self.broken is not None:
            raise self.broken
        return parts

    async def parts(self) -> AsyncIterator[Part]:
        """All parts as they come. Raises what broke the job."""
        while parts := await self.some():
            for part in parts:
                yield part

    async def answers(self) -> list[Answer]:
        """All answers, in the order of the prompts. Raises what broke the job."""
        found: dict[int, Answer] = {}
        async for part in self.parts():
            if part.answer is not None:
                found[part.at] = part.answer
        return [found[at] for at in range(self.size)]

    def close(self) -> None:
        """The reader wants no more; what is open is cancelled."""
        if self._ended < len(self.shares):
            self._over, self._ended = True, len(self.shares)
            self._dropped(self)

    def leave(self) -> None:
        """Like `close`, from outside of the reading task, whose wait ends."""
        self.close()
        self._parts.clear()
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
