"""Limits of requests and tokens a minute, and the headers that tell of them.

Buckets fill continuously, as both providers say of theirs. OpenAI counts the prompt and the most
that may be answered when a request arrives; Anthropic counts input tokens that are not read from
the cache (https://platform.claude.com/docs/en/api/rate-limits, read 2026-11-28).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil, inf

from benchmarks.standin.cache import Reading
from benchmarks.standin.errors import Refused
from benchmarks.standin.rules import Provider


@dataclass(slots=True)
class Bucket:
    """Fills by so much a minute up to its size; it is full at first."""

    per_minute: float
    size: float
    left: float = field(init=False)
    _seen: float | None = None

    def __post_init__(self) -> None:
        self.left = self.size

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much is there; 0 if it is."""
        if self.per_minute == inf:
            return 0.0
        if self._seen is not None:
            self.left = min(self.size, self.left + (now - self._seen) * self.per_minute / 60)
        self._seen = now
        return max(0.0, (min(amount, self.size) - self.left) * 60 / self.per_minute)

    @property
    def until_full(self) -> float:
        """Seconds."""
        return (self.size - self.left) * 60 / self.per_minute


@dataclass(slots=True)
class Limits:
    """The limits of one customer."""

    requests_per_minute: float = inf
    tokens_per_minute: float = inf
    burst: float = 60.0
    """Seconds of the limit that a bucket holds."""
    refused: int = 0
    """Requests answered 429."""
    buckets: tuple[Bucket, ...] = field(init=False)
    """Of requests and of tokens."""

    def __post_init__(self) -> None:
        rates = (self.requests_per_minute, self.tokens_per_minute)
        self.buckets = tuple(Bucket(rate, rate * self.burst / 60) for rate in rates)

    def admit(self, provider: Provider, reading: Reading, most: int | None, now: float) -> None:
        """Let a request through. Raises Refused with the seconds to wait."""
        is_anthropic = provider == "anthropic"
        tokens = reading.total - reading.read if is_anthropic else reading.total + (most or 0)
        needs = (1.0, float(tokens))
        waits = [b.wait(need, now) for b, need in zip(self.buckets, needs, strict=True)]
        if max(waits) > 0:
            self.refused += 1
            headers = self.headers(provider, now) | {"retry-after": str(ceil(max(waits)))}
            if not is_anthropic:
                headers["retry-after-ms"] = str(ceil(max(waits) * 1000))
            what = "requests" if waits[0] >= waits[1] else "tokens"
            said = f"Rate limit reached on {what} per min. Please try again in {max(waits):.3f}s."
            raise Refused(429, said, "rate_limit_exceeded", **headers)
        for bucket, need in zip(self.buckets, needs, strict=True):
            bucket.left -= need

    def headers(self, provider: Provider, now: float) -> dict[str, str]:
        """What a reply says of the limits that there are. now: seconds since the epoch."""
        told = {}
        tokens = "input-tokens" if provider == "anthropic" else "tokens"
        for name, bucket in zip(("requests", tokens), self.buckets, strict=True):
            if bucket.per_minute == inf:
                continue
            before, after, reset = "x-ratelimit-", f"-{name}", f"{bucket.until_full:.3f}s"
            if provider == "anthropic":
                before, after = f"anthropic-ratelimit-{name}-", ""
                when = datetime.fromtimestamp(now + bucket.until_full, UTC)
                reset = f"{when:%Y-%m-%dT%H:%M:%SZ}"
            told[f"{before}limit{after}"] = f"{bucket.per_minute:.0f}"
            told[f"{before}remaining{after}"] = str(max(0, int(bucket.left)))
            told[f"{before}reset{after}"] = reset
        return told
