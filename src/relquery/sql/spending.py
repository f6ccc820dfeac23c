"""What an answer has cost, by the published price of its model, and what calls wait for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from relquery.backends.base import Backend
from relquery.prices.price import Price
from relquery.prices.table import known_price
from relquery.prompt import Answer


def usd_of(backend: Backend) -> Callable[[Answer], float | None]:
    """Gives what an answer of a backend has cost in USD; None if its model has no known price.

    The backend's name is asked for when the first answer is there, as it may not be open before.
    """

    @cache
    def price() -> Price | None:
        return known_price(backend.name)

    def usd(answer: Answer) -> float | None:
        if (known := price()) is None:
            return None
        cached, written = answer.cached_tokens, answer.written_tokens
        uncached = max(0, answer.prompt_tokens - cached - written)
        live = known.usd(uncached, written, cached, answer.output_tokens)
        return backend.price_share * live

    return usd


def waiting_of(backend: Backend) -> Callable[[], float]:
    """Gives the seconds until a backend sends more, because of a provider's limits."""

    def waiting() -> float:
        tally = backend.tally()
        return 0.0 if tally is None else tally.waiting

    return waiting
