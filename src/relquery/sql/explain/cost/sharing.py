"""Says where sharing prefixes saves nothing, and what would change that."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.prices.price import Price
from relquery.prices.table import all_prices

_SUGGESTED = 3


@dataclass(frozen=True, slots=True)
class Unshared:
    """No prompt begins with as many shared tokens as the provider caches.

    longest: tokens that two prompts share at most. model, minimum: the price's. lower: models that
    cache prefixes as short as these, with their minimum.
    """

    longest: int
    model: str
    minimum: int
    lower: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        missing = self.minimum - self.longest
        others = ", ".join(f"{name} (from {least:,} on)" for name, least in self.lower)
        elsewhere = f"; or another model: {others}" if others else ""
        return (
            f"sharing saves nothing: prompts begin with at most {self.longest:,} shared tokens, "
            f"and {self.model} caches prefixes of {self.minimum:,} or more. {missing:,} more would "
            "change that: a longer instruction, with examples, or more text that several rows "
            f"have, sent first{elsewhere}"
        )


def unshared(longest: float, price: Price) -> Unshared | None:
    """What to say if prompts share at most `longest` tokens of the provider; None if they suffice.

    Also None where the provider's minimum is not known.
    """
    if not 0 <= longest < price.minimum:
        return None
    lower = [one for one in all_prices().values() if 0 < one.minimum <= longest]
    cheapest = sorted(lower, key=lambda one: one.uncached)[:_SUGGESTED]
    names = tuple((one.name, one.minimum) for one in cheapest)
    return Unshared(int(longest), price.name, price.minimum, names)
