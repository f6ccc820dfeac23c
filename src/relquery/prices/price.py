"""What a provider charges for the tokens of one model, and by which rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from math import inf

from relquery.errors import ConfigError

MILLION = 1_000_000
"""Prices are for this many tokens."""
HOUR_S = 3600.0
_WRITTEN_FOR_AN_HOUR = 2  # times the price of input, where a price does not say (Anthropic)


@dataclass(frozen=True, slots=True)
class Price:
    """How one provider bills the tokens of one model.

    date: ISO day or month of the figures. source: the public page that gave them.
    uncached, write, read, output: USD per million tokens: sent without cache, written to the
        cache (as `uncached` where writing is free), served by the cache, and generated.
    minimum: tokens of the shortest prefix that is cached.
    granularity: hits of an automatic cache come in steps of this many tokens above `minimum`.
    breakpoints: prefixes that a request may mark to be cached; 0: the cache is automatic.
    requests_per_minute: limit on one prefix of an automatic cache; requests beyond it go to another
        machine. None: no known limit.
    lifetime_s: seconds for which an entry outlives its last use. None: not documented.
    write_1h: as `write`, for entries that live an hour. None: there are none.
    batch: what the batch API charges, as a part of all prices here. None: there is no batch API.
    reasoning: whether the model reasons before it answers unless it is told not to. These tokens
        are billed as output, and no answer shows them.

    Raises ConfigError for figures that contradict each other.
    """

    name: str
    date: str
    source: str
    uncached: float
    write: float
    read: float
    output: float
    minimum: int = 0
    granularity: int = 1
    breakpoints: int = 0
    requests_per_minute: float | None = None
    lifetime_s: float | None = None
    write_1h: float | None = None
    batch: float | None = None
    reasoning: bool = False

    def __post_init__(self) -> None:
        for field, (right, expected) in self._rules().items():
            if not right:
                raise ConfigError(
                    f"{field} of price '{self.name}' is {getattr(self, field)!r}; it must be "
                    f"{expected}."
                )

    @property
    def mode(self) -> str:
        """How prefixes are cached, in words."""
        return f"{self.breakpoints} breakpoints" if self.breakpoints else "automatic"

    @property
    def for_an_hour(self) -> Price:
        """The price if every marked prefix is kept for an hour."""
        long = self.write_1h
        write = _WRITTEN_FOR_AN_HOUR * self.uncached if long is None else long
        return replace(self, write=write, lifetime_s=HOUR_S)

    def usd(self, uncached: float, written: float, read: float, output: float = 0.0) -> float:
        """What so many tokens cost."""
        cost = uncached * self.uncached + written * self.write + read * self.read
        return (cost + output * self.output) / MILLION

    def _rules(self) -> dict[str, tuple[bool, str]]:
        """Field: (whether it is right, what it must be)."""
        automatic = self.breakpoints == 0
        rate, lifetime, long = self.requests_per_minute, self.lifetime_s, self.write_1h
        return {
            "date": (_is_iso(self.date), "an ISO day or month, like 2026-11 or 2026-11-20"),
            "uncached": (0 < self.uncached < inf, "above 0"),
            "read": (0 <= self.read <= self.uncached, "between 0 and uncached"),
            "write": (
                self.write == self.uncached if automatic else self.uncached <= self.write < inf,
                f"{self.uncached:g}, like uncached, as an automatic cache is written for nothing; "
                "if requests mark what is cached, give breakpoints too"
                if automatic
                else f"at least {self.uncached:g}, like uncached",
            ),
            "output": (0 <= self.output < inf, "0 or more"),
            "minimum": (self.minimum >= 0, "0 or more"),
            "breakpoints": (self.breakpoints >= 0, "0 or more"),
            "granularity": (
                self.granularity >= 1 if automatic else self.granularity == 1,
                "1 or more, and 1 if requests have breakpoints",
            ),
            "requests_per_minute": (
                rate is None or (automatic and rate >= 1),
                "None, or 1 or more and without breakpoints",
            ),
            "lifetime_s": (lifetime is None or lifetime > 0, "None or above 0"),
            "write_1h": (
                long is None or (not automatic and self.write <= long < inf),
                "None, or write or above it if requests have breakpoints",
            ),
            "batch": (self.batch is None or 0 < self.batch <= 1, "None, or above 0 and at most 1"),
        }


def _is_iso(text: str) -> bool:
    try:
        date.fromisoformat(text if len(text) > len("2026-11") else f"{text}-01")
    except ValueError:
        return False
    return True
