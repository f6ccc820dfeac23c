"""How much one key may ask in a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil

from relquery.serve.errors import HttpError

MINUTE = 60.0


class Bucket:
    """A token bucket: it fills evenly, up to a minute's worth, and may be overdrawn.

    limit: what it gains in a minute.
    """

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._level, self._clock, self._at = float(limit), clock, clock()

    @property
    def level(self) -> float:
        """What is in it now; negative when it is overdrawn."""
        now = self._clock()
        gained = (now - self._at) * self.limit / MINUTE
        self._level, self._at = min(float(self.limit), self._level + gained), now
        return self._level

    def take(self, amount: float) -> None:
        """Take some out, even if it is not there."""
        self._level = self.level - amount

    def wait(self, amount: float) -> float:
        """Seconds until it has this much."""
        return max(0.0, (amount - self.level) * MINUTE / self.limit)


class Rates:
    """The limits of one key. What its requests cost is known afterwards, and delays the next.

    requests, tokens: per minute; None for no limit. Tokens are those of prompts, from the cache or
    not, and of answers.
    """

    def __init__(
        self,
        requests: int | None,
        tokens: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = requests, tokens
        self._buckets = {
            name: Bucket(limit, clock)
            for name, limit in (("requests", requests), ("tokens", tokens))
            if limit is not None
        }

    def wait(self) -> float:
        """Seconds until its tokens are not used up."""
        tokens = self._buckets.get("tokens")
        return 0.0 if tokens is None else tokens.wait(1)

    def admit(self) -> None:
        """Count a request. Raises HttpError if it comes too early."""
        for name, bucket in self._buckets.items():
            wait = bucket.wait(1)
            if wait > 0:
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
            found[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.level)))
            found[f"x-ratelimit-reset-{name}"] = f"{bucket.wait(bucket.limit):.3f}s"
        return found
