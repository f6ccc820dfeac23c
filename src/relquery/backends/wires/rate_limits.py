"""Rate limits in a reply: in its headers, and in the body of an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

Headers = Mapping[str, str]
_PART = r"\d+(?:\.\d+)? ?(?:ms|milliseconds?|s|secs?|seconds?|m|minutes?|h|hours?|d|days?)(?![a-z])"
_DURATION = re.compile(rf"(?:{_PART}[ ,]*)+", re.I)
_NUMBERS = re.compile(r"(\d+(?:\.\d+)?) ?(milli|ms|s|m|h|d)", re.I)
_SECONDS = {"milli": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
# Of OpenAI and most others, and of Anthropic, with the kind of limit and what is told of it.
_NAMES = {
    "requests": ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}"),
    "tokens": (
        "x-ratelimit-{}-tokens",
        "anthropic-ratelimit-tokens-{}",
        "anthropic-ratelimit-input-tokens-{}",
    ),
}
_WAIT = re.compile(rf"(?:try again|retry|wait)(?: after| in| for)? ?((?:{_PART}[ ,]*)+)", re.I)
_SECONDS_FIELDS = ("retry_after", "retryAfter", "retry_after_seconds", "retryDelay")


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit per minute. reset: seconds until it is whole again. None where it is not told."""

    limit: float | None
    remaining: float | None
    reset: float | None


def quota(headers: Headers, kind: str, now: datetime) -> Quota | None:
    """What is told of a limit, "requests" or "tokens"; None if nothing. now: with a time zone."""
    for name in _NAMES[kind]:
        limit = _number(headers.get(name.format("limit")))
        remaining = _number(headers.get(name.format("remaining")))
        if limit is not None or remaining is not None:
            return Quota(limit, remaining, _until(headers.get(name.format("reset")), now))
    return None


def retry_after(headers: Headers, now: datetime) -> float | None:
    """Seconds that the server asks to wait before the next try; None if it does not tell.

    Where it names none, but says that a limit is used up: until that is whole again.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    told = headers.get("retry-after")
    seconds = _number(told)
    if seconds is None and told is not None:
        seconds = _until_date(told, now)
    if seconds is not None:
        return seconds
    resets = [
        wait.reset
        for kind in _NAMES
        if (wait := quota(headers, kind, now)) is not None
        and wait.remaining == 0
        and wait.reset is not None
    ]
    return max(resets, default=None)


def wait_in_body(body: Any) -> float | None:
    """Seconds that the body of an error asks to wait: in a field such as Google's
    `RetryInfo.retryDelay`, or in words, such as "try again in 3s"; None if it does not tell.
    """
    words, parts = [], [body]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            for name in _SECONDS_FIELDS:
                value = part.get(name)
                if isinstance(value, int | float | str) and not isinstance(value, bool):
                    seconds = _until(str(value), utc())
                    if seconds is not None:
                        return seconds
            parts += part.values()
    matches = (_WAIT.search(text) for text in words)
    return next((_sum(each[1]) for each in matches if each is not None), None)


def _sum(duration: str) -> float:
    return sum(float(n) * _SECONDS[unit.lower()] for n, unit in _NUMBERS.findall(duration))


def utc() -> datetime:
    """The date and time, which some headers name."""
    return datetime.now(UTC)


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return number if number >= 0 and isfinite(number) else None


def _until(text: str | None, now: datetime) -> float | None:
    """Seconds, from "6m0s", "120ms", "17" or a moment."""
    if text is None:
        return None
    if (seconds := _number(text)) is not None:
        return seconds
    if _DURATION.fullmatch(text):
        return _sum(text)
    try:
        moment = datetime.fromisoformat(text)
        return max(0.0, (moment - now).total_seconds())
    except (ValueError, TypeError):
        return None


def _until_date(text: str, now: datetime) -> float | None:
    try:
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError):
        return None
