"""What a provider charges for input tokens, and the savings that a hit rate implies."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from importlib.resources import files
from types import MappingProxyType

from relquery.errors import ConfigError, unknown


@dataclass(frozen=True, slots=True)
class Price:
    """How one provider bills the input tokens of one model.

    date: ISO day or month of the figures. source: the public page that gave them.
    uncached, write, read, output: USD per million tokens: sent without cache, written to the
        cache (as `uncached` where writing is free), served by the cache, and generated.
    minimum: tokens of the shortest prefix that is cached.
    granularity: hits of an automatic cache come in steps of this many tokens above `minimum`.
    breakpoints: prefixes that a request may mark to be cached; 0: the cache is automatic.
    requests_per_minute: limit on one prefix of an automatic cache; requests beyond it go to another
        machine. None: no known limit.
    lifetime_s: seconds for which an entry outlives its last use. None: not documented.

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

    def __post_init__(self) -> None:
        for field, (right, expected) in self._rules().items():
            if not right:
                raise ConfigError(
                    f"{field} of price '{self.name}' is {getattr(self, field)!r}; it must be "
                    f"{expected}."
                )

    def _rules(self) -> dict[str, tuple[bool, str]]:
        """Field: (whether it is right, what it must be)."""
        automatic = self.breakpoints == 0
        rate, lifetime = self.requests_per_minute, self.lifetime_s
        return {
            "date": (_is_iso(self.date), "an ISO day or month, like 2026-11 or 2026-11-20"),
            "uncached": (self.uncached > 0, "above 0"),
            "read": (0 <= self.read <= self.uncached, "between 0 and uncached"),
            "write": (
                self.write == self.uncached if automatic else self.write >= self.uncached,
                "uncached, or above it if requests have breakpoints",
            ),
            "output": (self.output >= 0, "0 or more"),
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
        }


def _is_iso(text: str) -> bool:
    try:
        date.fromisoformat(text if len(text) > len("2026-11") else f"{text}-01")
    except ValueError:
        return False
    return True


def _load() -> Mapping[str, Price]:
    text = files("relquery.table.cost").joinpath("prices.toml").read_text(encoding="utf-8")
    return MappingProxyType(
        {name: Price(name=name, **fields) for name, fields in tomllib.loads(text).items()}
    )


PRICES = _load()


def find_price(name: str) -> Price:
    """The price model of this name. Raises ConfigError, with the nearest name, for others."""
    if name not in PRICES:
        raise ConfigError(
            unknown("price model", name, PRICES)
            + " For your own price, pass a relquery.table.cost.price.Price."
        )
    return PRICES[name]


def hourly(price: Price) -> Price:
    """The price of entries that live for an hour, at Anthropic: writing costs twice `uncached`."""
    return replace(price, write=2 * price.uncached, lifetime_s=3600.0)


def savings(
    hit_rate: float, price: Price, *, before: float | None = None, miss: float | None = None
) -> float:
    """Share of the input cost that a hit rate saves, where any prefix can be cached.

    A hit costs `read`, a miss `miss` USD per million tokens (default: the write price, as each
    miss is written). before: the hit rate to compare with; None: sending without a cache.

    Paper 000, Table 4, compares GGR with the original order in this way. Its OpenAI column is for
    gpt-4o-mini. All seven rows of its Anthropic column can only be reproduced if a miss is charged
    twice, for sending and for writing: `miss=uncached + write`, 2.25 times the base price. With the
    prices of section 6.3, a written token costs 1.25 times the base price in total, and the savings
    are two to four points lower than printed.

    Raises ConfigError if a rate is not between 0 and 1.
    """
    for name, rate in (("hit_rate", hit_rate), ("before", before)):
        if rate is not None and not 0 <= rate <= 1:
            raise ConfigError(f"{name} is {rate}; a hit rate must be between 0 and 1.")
    paid = price.write if miss is None else miss

    def cost(rate: float) -> float:
        return (1 - rate) * paid + rate * price.read

    baseline = price.uncached if before is None else cost(before)
    return 1 - cost(hit_rate) / baseline if baseline else 0.0
