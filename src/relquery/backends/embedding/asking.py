"""Texts on their way to an endpoint: several requests at once, and smaller ones if need be."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from relquery.arrays import Float32s
from relquery.errors import RelqueryError, RequestError
from relquery.retrieval.embedder import Part

_MOST_REFUSED = 10  # texts, until the others are not asked, either
_TICK = 0.25  # seconds that a wait lasts at most: a signal may reach a thread that does not wait
_TEXTS, _CHARACTERS = 256, 200_000  # of one request, at most


class TooLargeError(RequestError):
    """A request of several texts that may be served in parts, or of one that is too long."""


Ask = Callable[[list[str]], Awaitable[Float32s]]


@dataclass(slots=True)
class Sizes:
    """What a server was found not to take. refused: (texts, characters) of requests that it took
    in halves.
    """

    refused: list[tuple[int, int]] = field(default_factory=list)

    def parts(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The places of texts for one request each."""
        places: list[int] = []
        size = 0
        for at, text in enumerate(texts):
            if places and (len(places) == _TEXTS or size + len(text) > _CHARACTERS):
                yield places
                places, size = [], 0
            places.append(at)
            size += len(text)
        if places:
            yield places

    def are_known(self, texts: int, characters: int) -> bool:
        """Whether a request is at least as large as one that was refused."""
        return any(texts >= one and characters >= other for one, other in self.refused)


@dataclass(slots=True)
class Asking:
    """opened: gives what sends one request. concurrency: requests under way at once. problem: for
    which no further one is sent; those under way are waited for. refused: errors of single texts.
    """

    texts: Sequence[str]
    opened: Callable[[], AbstractAsyncContextManager[Ask]]
    sizes: Sizes
    concurrency: int
    problem: RelqueryError | None = None
    refused: list[RelqueryError] = field(default_factory=list)
    _arrived: deque[Part] = field(default_factory=deque)
    _bell: SimpleQueue[None] = field(default_factory=SimpleQueue)
    _task: asyncio.Task[None] | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _is_over: bool = False
    _has_run: bool = False

    def parts(self) -> Iterator[Part]:
        """What arrives, as it does; then raises the first error. What has arrived when the user
        interrupts it still comes.
        """
        interrupt: KeyboardInterrupt | None = None
        with ThreadPoolExecutor(1) as thread:  # this one may have a loop of its own
            running = thread.submit(self._run)
            try:
                has_run = False
                while not has_run or self._arrived:
                    try:
                        has_run = self._has_run  # read before what has arrived: nothing does later
                        while self._arrived:
                            yield self._arrived[0]
                            self._arrived.popleft()
                        self._wait()
                    except KeyboardInterrupt as error:
                        interrupt = error
                        self._end()
            finally:
                self._end()
        if interrupt is not None:
            raise interrupt
        running.result()
        for problem in (self.problem, *self.refused[:1]):
            if problem is not None:
                raise problem

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(self._send_all())
        finally:
            self._has_run = True
            self._bell.put(None)

    def _wait(self) -> None:
        """Until something may have arrived."""
        if not self._has_run:
            with suppress(Empty):
                self._bell.get(timeout=_TICK)

    def _end(self) -> None:
        """Send nothing more, and leave what is under way."""
        self._is_over = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _send_all(self) -> None:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        free = asyncio.Semaphore(self.concurrency)

        async with self.opened() as ask:

            async def send(places: list[int]) -> None:
                async with free:
                    await self._send(ask, places)

            await asyncio.gather(*map(send, self.sizes.parts(self.texts)))

    async def _send(self, ask: Ask, places: list[int]) -> bool:
        """Ask for some texts, in halves if they are too many. Returns whether all have vectors."""
        if self._is_over or self.problem is not None or len(self.refused) >= _MOST_REFUSED:
            return False
        texts = [self.texts[at] for at in places]
        size = len(texts), sum(map(len, texts))
        if len(texts) > 1 and self.sizes.are_known(*size):
            return await self._send_halves(ask, places)
        try:
            vectors = await ask(texts)
        except TooLargeError as error:
            if len(texts) == 1:
                self.refused.append(error)
                return False
            is_taken = await self._send_halves(ask, places)
            if is_taken:  # else it may be for a single text
                self.sizes.refused.append(size)
            return is_taken
        except RelqueryError as error:
            self.problem = self.problem or error
            return False
        self._arrived.append((places, vectors))
        self._bell.put(None)
        return True

    async def _send_halves(self, ask: Ask, places: list[int]) -> bool:
        middle = len(places) // 2
        first = await self._send(ask, places[:middle])
        return await self._send(ask, places[middle:]) and first
