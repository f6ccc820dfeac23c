"""Whether a request may be served now: the queue's room, and what one key may ask in a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil

from relquery.serve.errors import HttpError, bad_request, stopping
from relquery.serve.settings import ServeConfig

MINUTE = 60.0


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
    """Admits prompts while there is room in the queue. Used in the event loop alone."""

    def __init__(self, config: ServeConfig) -> None:
        self.open = 0
        """Prompts that have no answer yet."""
        self.stopping = False
        """Whether the server was told to stop."""
        self._config = config

    def check_open(self) -> None:
        """Raises HttpError if the server takes no more requests."""
        if self.stopping:
            raise stopping()

    def check_room(self, size: int = 1) -> None:
        """Raises HttpError if so many more prompts may not be open."""
        if self.open + size > self._config.max_waiting:
            raise queue_full(
                f"{self.open:,} requests are open, and at most {self._config.max_waiting:,} may be."
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


def queue_full(why: str) -> HttpError:
    """Too much is open."""
    headers = {"Retry-After": "1"}
    return HttpError(429, f"{why} Ask again later.", "queue_full", headers=headers)
