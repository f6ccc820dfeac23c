"""The price of one model's tokens at a provider, and its rules."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from math import inf
from typing import Any

from relquery.errors import ConfigError

MILLION = 1_000_000
"""Prices are for this many tokens."""
HOUR_S = 3600.0
_WRITTEN_FOR_AN_HOUR = 2  # times the price of input, where a price does not say (Anthropic)


@dataclass(frozen=True, slots=True)
class Tier:
    """Prices of a call with a long prompt: all of its tokens are billed by them."""

    above: int
    """Tokens of the longest prompt, with what the cache serves, that still costs less."""
    uncached: float
    """As in Price, and so are the next ones."""
    write: float
    read: float
    output: float
    write_1h: float | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one model's tokens at one provider.

    Amounts are USD per million tokens. Raises ConfigError for figures that contradict each other.
    """

    name: str
    """The provider's name of the model."""
    date: str
    """ISO day or month from which the figures hold, or on which they were read."""
    source: str
    """Public page that gives them."""
    uncached: float
    """Prompt tokens that are sent without a cache."""
    write: float
    """Prompt tokens written to the cache; as `uncached` where writing is free."""
    read: float
    """Prompt tokens served by the cache."""
    output: float
    """Tokens of answers."""
    minimum: int = 0
    """Tokens of the shortest prefix that is cached."""
    granularity: int = 1
    """Hits of an automatic cache come in steps of this many tokens above `minimum`."""
    breakpoints: int = 0
    """Prefixes that a request may mark to be cached; 0: the cache is automatic."""
    requests_per_minute: float | None = None
    """Limit on one prefix of an automatic cache, beyond which requests go to another machine; None:
    no known limit."""
    lifetime_s: float | None = None
    """Seconds for which an entry outlives its last use; None: not documented."""
    write_1h: float | None = None
    """As `write`, for entries that live an hour; None: there are none."""
    batch: float | None = None
    """What the batch API charges, as a part of all prices here; None: there is no batch API."""
    reasoning: bool = False
    """Whether the model reasons before it answers unless it is told not to. These tokens are billed
    as output, and no answer shows them."""
    until: str | None = None
    """ISO day after which the figures no longer hold; None: not announced."""
    tiers: tuple[Tier, ...] = ()
    """Prices of longer prompts, the shortest first."""
    flex: float | None = None
    """What a call of the slow service tier "flex" costs, as a part of all prices here."""
    batch_read: float | None = None
    """As `read`, in batches, where it is another part than `batch`."""
    peak: float = 1.0
    """By how many times the dearest hours of the day cost more than these figures."""
    knows_minimum: bool = True
    """Whether a page gives `minimum`. Otherwise it is the longest of the provider's models, so that
    no saving is promised that may not come."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiers", tuple(sorted(self.tiers, key=lambda tier: tier.above)))
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
        tiers = tuple(replace(tier, write=_hour(tier)) for tier in self.tiers)
        return replace(self, write=_hour(self), lifetime_s=HOUR_S, tiers=tiers)

    @property
    def in_batch(self) -> Price:
        """The price of a batch's requests; the same if there is no batch API."""
        if self.batch is None:
            return self
        price = self.times(self.batch)
        return price if self.batch_read is None else replace(price, read=self.batch_read)

    def times(self, part: float) -> Price:
        """All amounts multiplied."""
        tiers = tuple(replace(tier, **_amounts(tier, part)) for tier in self.tiers)
        return replace(self, **_amounts(self, part), tiers=tiers)

    def of_prompt(self, tokens: float) -> Price:
        """The price of calls whose prompts have so many tokens, cached ones included."""
        longer = [tier for tier in self.tiers if tokens > tier.above]
        if not longer:
            return self
        return replace(self, **_amounts(longer[-1]), tiers=(), batch_read=None)

    def of_prompts(self, tokens: Sequence[float]) -> Price:
        """The mean price of calls whose prompts have so many tokens each."""
        if not self.tiers or not tokens:
            return self
        longest = [tier.above for tier in self.tiers]
        counts, sums = [0] * (len(longest) + 1), [0.0] * (len(longest) + 1)
        for token in tokens:
            tier_index = bisect_left(longest, token)
            counts[tier_index], sums[tier_index] = counts[tier_index] + 1, sums[tier_index] + token
        kinds: list[Price | Tier] = [self, *self.tiers]
        prices = [_amounts(self) | _amounts(each) for each in kinds]
        total = max(1.0, sum(sums))
        mean: dict[str, Any] = {
            name: sum(price[name] * part for price, part in zip(prices, sums, strict=True)) / total
            for name in prices[0]
        }
        outputs = zip(prices, counts, strict=True)
        mean["output"] = sum(price["output"] * count for price, count in outputs) / len(tokens)
        return replace(self, **mean, tiers=(), batch_read=None)

    def usd(self, uncached: float, written: float, read: float, output: float = 0.0) -> float:
        """What so many tokens of calls with short prompts cost."""
        cost = uncached * self.uncached + written * self.write + read * self.read
        return (cost + output * self.output) / MILLION

    def call_usd(
        self, prompt: float, output: float, cached: int = 0, written: int = 0, written_1h: int = 0
    ) -> float:
        """What one call costs. cached, written: tokens of the prompt; written_1h: those of
        `written` that are kept for an hour.
        """
        price = self.of_prompt(prompt)
        uncached = max(0, prompt - cached - written)
        more = written_1h * (_hour(price) - price.write) / MILLION
        return price.usd(uncached, written, cached, output) + more

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
            "until": (self.until is None or _is_iso(self.until), "None, or an ISO day"),
            "tiers": (
                all(
                    tier.above > 0
                    and tier.uncached > 0
                    and 0 <= tier.read <= tier.uncached
                    and tier.write >= tier.uncached
                    and tier.output >= 0
                    for tier in self.tiers
                ),
                "prices as above, each above a number of tokens",
            ),
            "flex": (self.flex is None or 0 < self.flex <= 1, "None, or above 0 and at most 1"),
            "peak": (1 <= self.peak < inf, "1 or more"),
            "batch": (self.batch is None or 0 < self.batch <= 1, "None, or above 0 and at most 1"),
        }


def _hour(of: Price | Tier) -> float:
    """What writing for an hour costs."""
    return _WRITTEN_FOR_AN_HOUR * of.uncached if of.write_1h is None else of.write_1h


def _amounts(of: Price | Tier, part: float = 1.0) -> dict[str, Any]:
    """The amounts in USD, multiplied, by field."""
    named = {each.name: getattr(of, each.name, None) for each in fields(Tier)}
    return {
        name: amount * part
        for name, amount in named.items()
        if name != "above" and amount is not None
    }


def _is_iso(text: str) -> bool:
    try:
        date.fromisoformat(text if len(text) > len("2026-11") else f"{text}-01")
    except ValueError:
        return False
    return True
