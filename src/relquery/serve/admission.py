"""Whether a request may be served now: the queue's room, and what one key may ask in a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import ceil

from relquery.backends.service.state import EngineState
from relquery.serve.errors import HttpError, bad_request, stopping
from relquery.serve.settings import ServeConfig

MINUTE = 60.0
FRESH = 1.0
"""Seconds for which a forecast is used."""
LONGEST = 600
"""Seconds after which a client is asked to come again, at most."""


class _Bucket:
    """A token bucket: it fills evenly, up to a minute's worth, and may be overdrawn."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._level, self._clock, self._at = float(limit), clock, clock()

    def take(self, amount: float) -> float:
        """Take some out, even if it is not there; what is left."""
        now = self._clock()
        gained = (now - self._at) * self.limit / MINUTE
        self._level, self._at = min(float(self.limit), self._level + gained) - amount, now
        return self._level

    def wait(self, amount: float) -> float:
        """Seconds until it has this much."""
        return max(0.0, (amount - self.take(0)) * MINUTE / self.limit)


class KeyLimits:
    """The limits of one key. What its requests cost is known afterwards, and delays the next.

    most: requests and tokens a minute; None for no limit. Tokens are those of prompts, from the
    cache or not, and of answers.
    """

    def __init__(
        self,
        requests: int | None,
        tokens: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most = requests, tokens
        named = (("requests", requests), ("tokens", tokens))
        self._buckets = {name: _Bucket(most, clock) for name, most in named if most is not None}

    def wait(self) -> float:
        """Seconds until its tokens are not used up."""
        tokens = self._buckets.get("tokens")
        return 0.0 if tokens is None else tokens.wait(1)

    def admit(self) -> None:
        """Count a request. Raises HttpError if it comes too early."""
        for name, bucket in self._buckets.items():
            if (wait := bucket.wait(1)) > 0:
                seconds = ceil(wait)
                raise HttpError(
                    429,
                    f"This key may use {bucket.limit:,} {name} a minute. Ask again in {seconds} s.",
                    "rate_limit_exceeded",
                    headers={"Retry-After": str(seconds), **self.headers()},
                )
        if "requests" in self._buckets:
            self._buckets["requests"].take(1)

    def charge(self, tokens: int) -> None:
        """Note what a request has used."""
        if "tokens" in self._buckets:
            self._buckets["tokens"].take(tokens)

    def headers(self) -> dict[str, str]:
        """What is left, in the headers that clients of OpenAI's API read."""
        found: dict[str, str] = {}
        for name, bucket in self._buckets.items():
            found[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
            found[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.take(0))))
            found[f"x-ratelimit-reset-{name}"] = f"{bucket.wait(bucket.limit):.3f}s"
        return found


class AdmissionController:
    """Admits prompts while there is room in the queue. Used in the event loop alone.

    state: asks the engine for its state. open: prompts that have no answer yet. stopping: whether
    the server was told to stop.
    """

    def __init__(self, config: ServeConfig, state: Callable[[], Awaitable[EngineState]]) -> None:
        self.open, self.stopping = 0, False
        self._config, self._state = config, state
        self._seconds, self._known_at = 1, -FRESH
        self._asking: asyncio.Task[None] | None = None

    def check_open(self) -> None:
        """Raises HttpError if the server takes no more requests."""
        if self.stopping:
            raise stopping()

    def check_room(self, size: int = 1) -> None:
        """Raises HttpError if so many more prompts may not be open."""
        if self.open + size > self._config.max_waiting:
            raise queue_full(
                f"{self.open:,} requests are open, and at most {self._config.max_waiting:,} may "
                "be.",
                self._retry_after(),
            )

    def admit(self, size: int) -> None:
        """Count prompts as open. Raises HttpError if they may not be."""
        self.check_open()
        most = min(self._config.max_rows, self._config.max_waiting)
        if size > most:
            raise bad_request(
                f"{size:,} prompts are more than the {most:,} that one request "
                "may have. Send fewer at once.",
                code="too_many_rows",
            )
        self.check_room(size)
        self.open += size

    def _retry_after(self) -> int:
        """Whole seconds until a relQuery ends, by the last forecast; 1 where there is none. A new
        one is asked for."""
        is_asking = self._asking is not None and not self._asking.done()
        if not is_asking and time.monotonic() - self._known_at >= FRESH:
            self._asking = asyncio.create_task(self._refresh())
        return self._seconds

    async def _refresh(self) -> None:
        try:
            queries = (await self._state()).queries
        except Exception:  # the engine's process has ended; the next one has nothing to do
            queries = ()
        found = [each.estimate for each in queries if each.estimate is not None]
        self._seconds = min(LONGEST, max(1, ceil(min(found, default=0.0))))
        self._known_at = time.monotonic()


def queue_full(why: str, seconds: int = 1) -> HttpError:
    """Too much is open. seconds: after which to ask again."""
    headers = {"Retry-After": str(seconds)}
    return HttpError(429, f"{why} Ask again later.", "queue_full", headers=headers)
