"""Times as a person writes and reads them."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from relquery.errors import ConfigError

_AGO = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_time(option: str, given: str | None, now: float) -> float | None:
    """Seconds since 1970 of an ISO date or time (UTC, unless it says otherwise), or of so long
    ago: 30m, 12h, 7d. Raises ConfigError.
    """
    if given is None:
        return None
    if (ago := _AGO.fullmatch(given.strip())) is not None:
        with suppress(OverflowError):
            return max(0.0, now - timedelta(**{_UNITS[ago[2]]: int(ago[1])}).total_seconds())
        return 0.0  # longer ago than any time
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise ConfigError(
            f"{option} {given}: expected a date, a time or so long ago, e.g. 2026-11-20, "
            "2026-11-20T18:00 or 7d."
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def shown_time(seconds: float | None) -> str:
    """In UTC, to the second; empty for none."""
    return "" if seconds is None else f"{instant(seconds):%Y-%m-%d %H:%M:%S}"


def instant(seconds: float) -> datetime:
    """A time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
