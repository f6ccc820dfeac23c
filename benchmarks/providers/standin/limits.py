"""Limits of requests and tokens a minute, and the headers that tell of them.

Buckets fill continuously, as both providers say of theirs. OpenAI counts the prompt and the most
that may be answered when a request arrives; Anthropic counts input tokens that are not read from
the cache (https://platform.claude.com/docs/en/api/rate-limits, read 2026-11-28).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil, inf

from benchmarks.providers.standin.cache import Reading
from benchmarks.providers.standin.errors import Refused
from benchmarks.providers.standin.rules import Provider


@dataclass(slots=True)
class Bucket:
    """Holds at most `size`, and gets `per_minute` a minute; it is full at first."""

    per_minute: float
    size: float = 0.0
    left: float = 0.0
    _seen: float | None = None

    def __post_init__(self) -> None:
        self.size = self.size or self.per_minute
        self.left = self.size

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much is there; 0 if it is."""
        if self.per_minute == inf:
            return 0.0
        if self._seen is not None:
            self.left = min(self.size, self.left + (now - self._seen) * self.per_minute / 60)
        self._seen = now
        return max(0.0, (min(amount, self.size) - self.left) * 60 / self.per_minute)

    def take(self, amount: float) -> None:
        """Take so much out."""
        if self.per_minute != inf:
            self.left -= amount

    @property
    def until_full(self) -> float:
        """Seconds."""
        return 0.0 if self.per_minute == inf else (self.size - self.left) * 60 / self.per_minute


@dataclass(slots=True)
class Limits:
    """The limits of one customer. used: requests and tokens that were let through.

    burst: seconds of the limit that a bucket holds. refused: requests answered 429.
    """

    requests_per_minute: float = inf
    tokens_per_minute: float = inf
    burst: float = 60.0
    refused: int = 0
    used: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _buckets: tuple[Bucket, Bucket] | None = None

    @property
    def buckets(self) -> tuple[Bucket, Bucket]:
        """Of requests and of tokens."""
        if self._buckets is None:
            share = self.burst / 60
            rates = self.requests_per_minute, self.tokens_per_minute
            first, second = (Bucket(rate, rate * share) for rate in rates)
            self._buckets = first, second
        return self._buckets

    def admit(self, provider: Provider, reading: Reading, most: int | None, now: float) -> None:
        """Let a request through. Raises Refused with the seconds to wait."""
        tokens = float(reading.total + (most or 0))
        if provider == "anthropic":
            tokens = float(reading.total - reading.read)
        needs = (1.0, tokens)
        waits = [b.wait(need, now) for b, need in zip(self.buckets, needs, strict=True)]
        if max(waits) > 0:
            self.refused += 1
            headers = self.headers(provider, now) | {"retry-after": str(ceil(max(waits)))}
            if provider != "anthropic":
                headers["retry-after-ms"] = str(ceil(max(waits) * 1000))
            what = "requests" if waits[0] >= waits[1] else "tokens"
            said = f"Rate limit reached on {what} per min. Please try again in {max(waits):.3f}s."
            raise Refused(429, said, "rate_limit_exceeded", headers=headers)
        for at, (bucket, need) in enumerate(zip(self.buckets, needs, strict=True)):
            bucket.take(need)
            self.used[at] += need

    def headers(self, provider: Provider, now: float) -> dict[str, str]:
        """What a reply says of the limits that there are. now: seconds since the epoch."""
        found = {}
        tokens = "input-tokens" if provider == "anthropic" else "tokens"
        for name, bucket in zip(("requests", tokens), self.buckets, strict=True):
            if bucket.per_minute == inf:
                continue
            left = str(max(0, int(bucket.left)))
            if provider == "anthropic":
                reset = datetime.fromtimestamp(now + bucket.until_full, UTC)
                begin = f"anthropic-ratelimit-{name}-"
                found[f"{begin}limit"] = f"{bucket.per_minute:.0f}"
                found[f"{begin}remaining"] = left
                found[f"{begin}reset"] = f"{reset:%Y-%m-%dT%H:%M:%SZ}"
            else:
                found[f"x-ratelimit-limit-{name}"] = f"{bucket.per_minute:.0f}"
                found[f"x-ratelimit-remaining-{name}"] = left
                found[f"x-ratelimit-reset-{name}"] = f"{bucket.until_full:.3f}s"
        return found
