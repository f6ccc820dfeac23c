"""How many requests and tokens a minute a provider takes, kept to by all who ask it."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from threading import Lock

from relquery.backends.wires.rate_limits import Headers, quota, utc
from relquery.backends.wires.reply import Usage
from relquery.backends.wires.wire import Json

_BURST_SECONDS = 1.0
"""What may be sent at once, as a time at the limit: servers check more often than by the minute."""
_FIRST_RATIO = 0.3  # tokens per byte, until the first usage tells
_WEIGHT = 0.05  # of the newest call in averages
_APART = 1.0  # seconds between calls while the server refuses
_WINDOW = 60.0
_LOWER, _RAISE, _RAISE_SHARE = 0.8, 0.05, 1e-4
"""Without a known limit: the part of the pace that is left after a refusal, and the requests a
minute that each answer adds, or the share of them if that is more."""
_LEAST = 6.0  # requests a minute
_ENOUGH_SEEN = 10  # answers, until there is a pace
_MORE_CARE, _MOST_CARE, _LESS_CARE = 1.25, 8.0, 0.995
_LAST = 10
"""Calls that tell whether a refusal without a known limit is one of many: most of them are."""
# Tokens that servers put around messages, and with which some describe a schema.
_AROUND, _OF_SCHEMA = 64, 512
OF_FORM = ("response_format", "text", "output_config")
"""Arguments of requests, by API, that say what the answer must be."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@dataclass(frozen=True, slots=True)
class Need:
    """prompt: bytes of the prompt, of which no tokenizer makes more tokens. output: tokens that
    the answer may have, by the request. keeps_hour: whether prefixes may be written to a cache for
    an hour.
    """

    prompt: int
    output: int
    keeps_hour: bool = False

    @classmethod
    def of(cls, body: Json) -> Need:
        """Of the body of a request."""
        output = max(body.get(name, 0) for name in _LIMITS)
        text = json.dumps(body, ensure_ascii=False)
        size = len(text.encode("utf-8", "surrogatepass"))
        size += _AROUND + _OF_SCHEMA * any(name in body for name in OF_FORM)
        return cls(size, output, '"ttl": "1h"' in text)


@dataclass(slots=True)
class Bucket:
    """What may be sent by a limit per minute. level: below 0 after more than was expected."""

    limit: float
    level: float
    at: float

    @classmethod
    def full(cls, limit: float, now: float) -> Bucket:
        """With what may be sent at once."""
        bucket = cls(limit, 0.0, now)
        bucket.level = bucket.most
        return bucket

    @property
    def most(self) -> float:
        """What it holds."""
        return max(1.0, self.limit / 60 * _BURST_SECONDS)

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much may be sent; a full bucket lets anything through."""
        self.level = min(self.most, self.level + (now - self.at) * self.limit / 60)
        self.at = now
        lacking = min(amount, self.most) - self.level
        return 0.0 if lacking <= 1e-9 else lacking / self.limit * 60


@dataclass(slots=True)
class Limiter:
    """Shared by all threads that ask one server. Moments are seconds of one monotonic clock.

    rpm, tpm: limits that the user gave; else the server's, once a reply tells them. While neither
    is known, refusals (429) slow down by the pace so far, but only if the server refuses most of
    what it is asked: a few among many answers are no matter of the pace. After a refusal that
    counts, nothing is sent until the moment that the server names, and then one call a second until
    one is answered.
    """

    rpm: float | None = None
    tpm: float | None = None
    _requests: Bucket | None = None
    _tokens: Bucket | None = None
    _is_paced: bool = False
    _open_calls: int = 0
    _open_tokens: float = 0.0
    _ratio: float | None = None
    _output: float | None = None
    _care: float = 1.0
    _until: float = 0.0
    _next: float = 0.0
    _refusals: int = 0
    _answered: deque[float] = field(default_factory=deque)
    _lowered_until: float = 0.0
    _last: deque[bool] = field(default_factory=lambda: deque(maxlen=_LAST))  # which were refused
    _lock: Lock = field(default_factory=Lock)

    @property
    def refusals(self) -> int:
        """How often the server has refused since it last answered."""
        return self._refusals

    @property
    def until(self) -> float:
        """The moment before which nothing is sent, as far as is known."""
        return max(self._until, self._next)

    @property
    def requests_per_minute(self) -> float | None:
        """Requests that are sent a minute at most, as far as is known."""
        return self.rpm if self._requests is None else self._requests.limit

    @property
    def tokens_per_minute(self) -> float | None:
        """Tokens that may be used a minute, as far as is known."""
        return self.tpm if self._tokens is None else self._tokens.limit

    def reason(self, now: float) -> str:
        """What holds up the next call, in words."""
        if self._until > now:
            return "The server takes no more for now"
        if self._tokens is not None and self._tokens.level < 0:
            return f"The limit is {self._tokens.limit:,.0f} tokens a minute"
        return f"The limit is {self.requests_per_minute or 0:,.0f} requests a minute"

    def reserve(self, need: Need, now: float) -> tuple[float, float]:
        """(0, tokens that are reserved) if a call may be sent now, else (seconds to wait, 0)."""
        with self._lock:
            self._set_up(now)
            tokens = self._expected(need)
            wait = max(
                self._until - now,
                0.0 if self._requests is None else self._requests.wait(1, now),
                0.0 if self._tokens is None else self._tokens.wait(tokens, now),
            )
            if wait > 0:
                self._next = now + wait
                return wait, 0.0
            if self._refusals:
                self._until = now + _APART
            if self._requests is not None:
                self._requests.level -= 1
            if self._tokens is not None:
                self._tokens.level -= tokens
            self._open_calls += 1
            self._open_tokens += tokens
            return 0.0, tokens

    def settle(
        self, need: Need, reserved: float, usage: Usage | None, headers: Headers, now: float
    ) -> None:
        """A call has ended. usage: None if none is told. headers: empty if no reply came."""
        with self._lock:
            self._open_calls -= 1
            self._open_tokens -= reserved
            if usage is not None and usage.prompt:
                self._learn(need, usage)
                if self._tokens is not None:
                    self._tokens.level += reserved - self._care * (usage.prompt + usage.output)
            self._hear(headers, now)

    def answered(self, now: float) -> None:
        """The server has taken a call."""
        with self._lock:
            if self._refusals:
                self._refusals, self._until = 0, min(self._until, now)
            self._care = max(1.0, self._care * _LESS_CARE)
            self._answered.append(now)
            self._last.append(False)
            self._forget(now)
            if self._is_paced and self._requests is not None:
                self._requests.limit += max(_RAISE, _RAISE_SHARE * self._requests.limit)

    def refused(self, seconds: float, now: float) -> bool:
        """The server has too many calls, and may be asked again in so many seconds.

        Returns whether nobody may ask it until then, rather than this one call.
        """
        with self._lock:
            self._last.append(True)
            if not self._is_limited and 2 * sum(self._last) <= len(self._last):
                if self._requests is not None and now >= self._lowered_until:
                    self._lower_pace(now, self._requests)
                    self._lowered_until = now + max(1.0, seconds)
                return False
            # Those that were under way together count once.
            if now >= self._until or not self._refusals:
                self._refusals += 1
                self._slow_down(now)
            self._until = max(self._until, now + seconds)
            return True

    def _set_up(self, now: float) -> None:
        if self._requests is None and self.rpm is not None:
            self._requests = Bucket.full(self.rpm, now)
        if self._tokens is None and self.tpm is not None:
            self._tokens = Bucket.full(self.tpm, now)

    def _expected(self, need: Need) -> float:
        ratio = _FIRST_RATIO if self._ratio is None else self._ratio
        output = need.output if self._output is None else self._output
        return self._care * (need.prompt * ratio + output)

    def _learn(self, need: Need, usage: Usage) -> None:
        self._ratio = _averaged(self._ratio, usage.prompt / need.prompt)
        self._output = _averaged(self._output, usage.output)

    def _hear(self, headers: Headers, now: float) -> None:
        date = utc()
        if (told := quota(headers, "requests", date)) is not None:
            limit = _lower(self.rpm, told.limit)
            if limit is not None:
                self._requests, self._is_paced = _at(limit, self._requests, now), False
            if self._requests is not None and told.remaining is not None:
                left = max(0.0, told.remaining - self._open_calls)
                self._requests.level = min(self._requests.level, left)
        if (told := quota(headers, "tokens", date)) is not None:
            limit = _lower(self.tpm, told.limit)
            if limit is not None:
                self._tokens = _at(limit, self._tokens, now)
            if self._tokens is not None and told.remaining is not None:
                left = max(0.0, told.remaining - self._open_tokens)
                self._tokens.level = min(self._tokens.level, left)

    @property
    def _is_limited(self) -> bool:
        """Whether a limit is known, rather than a pace found."""
        return self._tokens is not None or (self._requests is not None and not self._is_paced)

    def _slow_down(self, now: float) -> None:
        """Most of what the server was asked was too much."""
        if self._tokens is not None:  # the server may count more for a call than it took
            self._care = min(_MOST_CARE, self._care * _MORE_CARE)
        if self._requests is not None and not self._is_paced:
            return
        if (pace := self._pace(now)) is not None:
            if self._requests is not None:
                pace = min(pace, self._requests.limit)
            self._requests = _at(max(_LEAST, pace * _LOWER), self._requests, now)
            self._is_paced = True

    def _lower_pace(self, now: float, requests: Bucket) -> None:
        """Some of what the server was asked was too much, or refused for another reason.

        So much as it has answered in the last minute is never too much.
        """
        pace = self._pace(now) or 0.0
        requests.limit = min(requests.limit, max(requests.limit, pace) * _LOWER)

    def _pace(self, now: float) -> float | None:
        """Answers a minute, of late; None if there are too few."""
        self._forget(now)
        if len(self._answered) < _ENOUGH_SEEN:
            return None
        return len(self._answered) / max(1.0, now - self._answered[0]) * 60

    def _forget(self, now: float) -> None:
        while self._answered and now - self._answered[0] > _WINDOW:
            self._answered.popleft()


def _averaged(average: float | None, newest: float) -> float:
    return newest if average is None else average + _WEIGHT * (newest - average)


def _lower(given: float | None, told: float | None) -> float | None:
    known = [limit for limit in (given, told) if limit]
    return min(known, default=None)


def _at(limit: float, bucket: Bucket | None, now: float) -> Bucket:
    """A bucket of this limit, with what another holds."""
    if bucket is None:
        return Bucket(limit, 0.0, now)
    bucket.limit = limit
    return bucket
