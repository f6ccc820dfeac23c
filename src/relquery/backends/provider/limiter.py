"""Limits of requests and tokens a minute, shared by all calls to a provider."""

from __future__ import annotations

from collections import deque
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from math import inf
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
class RequestSize:
    """prompt: bytes of the prompt, of which no tokenizer makes more tokens. output: tokens that
    the answer may have, by the request. keeps_hour: whether prefixes may be written to a cache for
    an hour.
    """

    prompt: int
    output: int
    keeps_hour: bool = False

    @classmethod
    def of(cls, body: Json, content: bytes) -> RequestSize:
        """Of the body of a request. content: as it is sent."""
        output = max(body.get(name, 0) for name in _LIMITS)
        size = len(content) + _AROUND + _OF_SCHEMA * any(name in body for name in OF_FORM)
        return cls(size, output, b'"ttl": "1h"' in content)


@dataclass(slots=True)
class RateLimit:
    """A token bucket: the amount that may be sent a minute."""

    kind: str
    """Of what, as headers call it."""
    given: float | None = None
    """By the user."""
    per_minute: float | None = None
    """As far as is known."""
    level: float = inf
    """Of the bucket: below 0 after more than was expected."""
    at: float = 0.0
    """When it had that level."""
    under_way: float = 0.0
    """Of calls that have not ended."""

    def __post_init__(self) -> None:
        self.per_minute = self.given

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much may be sent; a full bucket lets anything through."""
        if self.per_minute is None:
            return 0.0
        most = max(1.0, self.per_minute / 60 * _BURST_SECONDS)
        self.level = min(most, self.level + (now - self.at) * self.per_minute / 60)
        self.at = now
        lacking = min(amount, most) - self.level
        return 0.0 if lacking <= 1e-9 else lacking / self.per_minute * 60

    def take(self, amount: float) -> None:
        """So much is sent."""
        self.level -= amount
        self.under_way += amount

    def change(self, per_minute: float, now: float) -> None:
        """Keep to another limit, with what the bucket holds; nothing at first."""
        if self.per_minute is None:
            self.level, self.at = 0.0, now
        self.per_minute = per_minute

    def hear(self, headers: Headers, date: datetime, now: float) -> bool:
        """Keep to what a reply tells; whether a limit is known now."""
        if (told := quota(headers, self.kind, date)) is None:
            return False
        known = [limit for limit in (self.given, told.limit) if limit]
        if known:
            self.change(min(known), now)
        if self.per_minute is not None and told.remaining is not None:
            self.level = min(self.level, max(0.0, told.remaining - self.under_way))
        return bool(known)


@dataclass(slots=True)
class Limiter:
    """Shared by all threads that ask one server. Moments are seconds of one monotonic clock.

    rpm, tpm: limits that the user gave; else the server's, once a reply tells them. While neither
    is known, refusals (429) slow down by the pace so far, but only if the server refuses most of
    what it is asked: a few among many answers are no matter of the pace. After a refusal that
    counts, nothing is sent until the moment that the server names, and then one call a second until
    one is answered.
    """

    rpm: InitVar[float | None] = None
    tpm: InitVar[float | None] = None
    refusals: int = 0
    """How often the server has refused since it last answered."""
    _requests: RateLimit = field(init=False)
    _tokens: RateLimit = field(init=False)
    _is_paced: bool = False
    """Whether the limit of requests is a pace that was found."""
    _ratio: float | None = None
    _output: float | None = None
    _care: float = 1.0
    _until: float = 0.0
    _next: float = 0.0
    _answered: deque[float] = field(default_factory=deque)
    _lowered_until: float = 0.0
    _last: deque[bool] = field(default_factory=lambda: deque(maxlen=_LAST))  # which were refused
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self, rpm: float | None, tpm: float | None) -> None:
        self._requests, self._tokens = RateLimit("requests", rpm), RateLimit("tokens", tpm)

    @property
    def until(self) -> float:
        """The moment before which nothing is sent, as far as is known."""
        return max(self._until, self._next)

    @property
    def requests_per_minute(self) -> float | None:
        """Requests that are sent a minute at most, as far as is known."""
        return self._requests.per_minute

    @property
    def tokens_per_minute(self) -> float | None:
        """Tokens that may be used a minute, as far as is known."""
        return self._tokens.per_minute

    def reason(self, now: float) -> str:
        """What holds up the next call, in words."""
        if self._until > now:
            return "The server takes no more for now"
        limit = self._tokens if self._tokens.level < 0 else self._requests
        return f"The limit is {limit.per_minute or 0:,.0f} {limit.kind} a minute"

    def reserve(self, need: RequestSize, now: float) -> tuple[float, float]:
        """(0, tokens that are reserved) if a call may be sent now, else (seconds to wait, 0)."""
        with self._lock:
            tokens = self._expected(need)
            wait = max(
                self._until - now, self._requests.wait(1, now), self._tokens.wait(tokens, now)
            )
            if wait > 0:
                self._next = now + wait
                return wait, 0.0
            if self.refusals:
                self._until = now + _APART
            self._requests.take(1)
            self._tokens.take(tokens)
            return 0.0, tokens

    def settle(
        self, need: RequestSize, reserved: float, usage: Usage | None, headers: Headers, now: float
    ) -> None:
        """A call has ended. usage: None if none is told. headers: empty if no reply came."""
        with self._lock:
            self._requests.under_way -= 1
            self._tokens.under_way -= reserved
            if usage is not None and usage.prompt:
                self._ratio = _averaged(self._ratio, usage.prompt / need.prompt)
                self._output = _averaged(self._output, usage.output)
                self._tokens.level += reserved - self._care * (usage.prompt + usage.output)
            date = utc()
            self._is_paced &= not self._requests.hear(headers, date, now)
            self._tokens.hear(headers, date, now)

    def answered(self, now: float) -> None:
        """The server has taken a call."""
        with self._lock:
            if self.refusals:
                self.refusals, self._until = 0, min(self._until, now)
            self._care = max(1.0, self._care * _LESS_CARE)
            self._answered.append(now)
            self._last.append(False)
            self._forget(now)
            if self._is_paced and (pace := self._requests.per_minute) is not None:
                self._requests.per_minute = pace + max(_RAISE, _RAISE_SHARE * pace)

    def refused(self, seconds: float, now: float) -> bool:
        """The server has too many calls, and may be asked again in so many seconds.

        Returns whether nobody may ask it until then, rather than this one call.
        """
        with self._lock:
            self._last.append(True)
            if not self._is_limited and 2 * sum(self._last) <= len(self._last):
                if (pace := self._requests.per_minute) is not None and now >= self._lowered_until:
                    # So much as it has answered in the last minute is never too much.
                    lower = max(pace, self._pace(now) or 0.0) * _LOWER
                    self._requests.per_minute = min(pace, lower)
                    self._lowered_until = now + max(1.0, seconds)
                return False
            # Those that were under way together count once.
            if now >= self._until or not self.refusals:
                self.refusals += 1
                self._slow_down(now)
            self._until = max(self._until, now + seconds)
            return True

    def _expected(self, need: RequestSize) -> float:
        ratio = _FIRST_RATIO if self._ratio is None else self._ratio
        output = need.output if self._output is None else self._output
        return self._care * (need.prompt * ratio + output)

    @property
    def _is_limited(self) -> bool:
        """Whether a limit is known, rather than a pace found."""
        is_of_requests = self._requests.per_minute is not None and not self._is_paced
        return self._tokens.per_minute is not None or is_of_requests

    def _slow_down(self, now: float) -> None:
        """Most of what the server was asked was too much."""
        if self._tokens.per_minute is not None:  # it may count more for a call than it took
            self._care = min(_MOST_CARE, self._care * _MORE_CARE)
        known = self._requests.per_minute
        if known is not None and not self._is_paced:
            return
        if (pace := self._pace(now)) is not None:
            pace = pace if known is None else min(pace, known)
            self._requests.change(max(_LEAST, pace * _LOWER), now)
            self._is_paced = True

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
