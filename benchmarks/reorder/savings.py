"""The savings that a hit rate implies, in closed form."""

from __future__ import annotations

from relquery.errors import ConfigError
from relquery.prices.price import Price


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
