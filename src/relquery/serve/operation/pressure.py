"""Asking the engine from the event loop, and when those should ask again who are too many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import ceil
from typing import Any

from relquery.backends.remote.link import Link
from relquery.backends.remote.process import Replied
from relquery.errors import ConfigError

FRESH = 1.0
"""Seconds for which a forecast is used."""
LOOKED_AT = 20
"""RelQueries whose forecasts are asked for: the earliest ones."""
LONGEST = 600


async def asked(link: Link, question: str, *given: Any) -> Any:
    """What an engine replies; see Serving.ask. No thread waits for it."""
    bell = _Bell()
    number = link.post(bell, question, *given)
    if number is None:
        raise ConfigError("The engine is closed.")
    try:
        told = await bell.future
    finally:
        link.forget(number)
    if told.error is not None:
        raise told.error
    return told.value


class _Bell:
    """Takes a reply from another thread into the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Replied] = self._loop.create_future()

    def put(self, reply: Replied) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ring, reply)

    def _ring(self, reply: Replied) -> None:
        if not self.future.done():
            self.future.set_result(reply)


class Pressure:
    """When a relQuery ends, so that there is room for another one.

    ask: see Server.ask.
    """

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        self._ask = ask
        self._seconds, self._known_at = 1, -FRESH
        self._asking: asyncio.Task[None] | None = None

    def retry_after(self) -> int:
        """Whole seconds, by the last forecast; 1 where there is none. A new one is asked for."""
        is_asking = self._asking is not None and not self._asking.done()
        if not is_asking and time.monotonic() - self._known_at >= FRESH:
            self._asking = asyncio.create_task(self._refresh())
        return self._seconds

    async def _refresh(self) -> None:
        try:
            state = await self._ask("state", LOOKED_AT)
        except Exception:  # the engine's process has ended; the next one has nothing to do
            found: list[float] = []
        else:
            found = [each.estimate for each in state.queries if each.estimate is not None]
        self._seconds = min(LONGEST, max(1, ceil(min(found, default=0.0))))
        self._known_at = time.monotonic()
