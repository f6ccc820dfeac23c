"""What an answer has cost, by the published price of its model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from relquery.backends.base import Backend
from relquery.prompt import Answer
from relquery.table.cost.price import PRICES, Price

_MILLION = 1_000_000


def usd_of(backend: Backend) -> Callable[[Answer], float | None]:
    """Gives what an answer of a backend has cost in USD; None if its model has no known price.

    The backend's name is asked for when the first answer is there, as it may not be open before.
    Tokens that a provider has written to its cache count as tokens that were not cached.
    """

    @cache
    def price() -> Price | None:
        return PRICES.get(backend.name.removeprefix("openai:"))

    def usd(answer: Answer) -> float | None:
        if (known := price()) is None:
            return None
        uncached = answer.prompt_tokens - answer.cached_tokens
        tokens = (
            uncached * known.uncached
            + answer.cached_tokens * known.read
            + answer.output_tokens * known.output
        )
        return tokens / _MILLION

    return usd
