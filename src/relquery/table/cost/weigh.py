"""What a hit on an item is worth: squared length, tokens saved, or money."""

from __future__ import annotations

from typing import NamedTuple

from relquery.arrays import Int64s
from relquery.errors import ConfigError, unknown
from relquery.prices.price import Price
from relquery.prices.table import all_prices
from relquery.table.cost.pieces import EstimatedTokens, Pieces, begin_alike, tokenize_items
from relquery.table.cost.tokens import Encode
from relquery.table.items import Beginnings, Items
from relquery.table.solvers.problem import Objective

Weight = str | Price  # "tokens", "squared", a Price or the name of one
WEIGHTS = ("tokens", "squared")


class Weighting(NamedTuple):
    """weights: (items,). price: None if cost does not matter. pieces: None if not counted."""

    name: str
    weights: Int64s
    objective: Objective
    price: Price | None
    pieces: Pieces | None


def weigh(items: Items, weight: Weight, encode: Encode | None, prefix: str) -> Weighting:
    """What items are worth by `weight`; prefix: the text before the fields of every row.

    squared: characters of the value, squared (paper 000, eq. 2). tokens: tokens of "column:
    value", or its characters without a tokenizer. A price: tokens, counted with the provider's
    minimum and granularity, valued at what reading saves and writing costs.

    Raises ConfigError for an unknown name.
    """
    if weight == "squared":
        return Weighting(weight, items.lengths**2, Objective(), None, None)
    if weight == "tokens" and encode is None:
        return Weighting(weight, items.characters, Objective(), None, None)
    price = None if weight == "tokens" else _as_price(weight)
    pieces = tokenize_items(items, encode or EstimatedTokens(), prefix)
    tokens = pieces.items.lengths[items.same]
    if price is None:
        return Weighting("tokens", tokens, Objective(), None, pieces)
    objective = Objective(
        start=len(pieces.prefix),
        minimum=price.minimum,
        granularity=price.granularity,
        read=(price.uncached - price.read) / price.uncached,
        write=(price.write - price.uncached) / price.uncached,
    )
    return Weighting(price.name, tokens, objective, price, pieces)


def beginnings_of(items: Items, weighting: Weighting) -> Beginnings | None:
    """What hits of partial items are worth, in the unit of the weights; None if nothing."""
    if weighting.name == "squared":
        return None
    if weighting.pieces is None:
        return items.beginnings
    return begin_alike(weighting.pieces, items.same)


def _as_price(weight: Weight) -> Price:
    if isinstance(weight, Price):
        return weight
    prices = all_prices()
    if isinstance(weight, str) and weight in prices:
        return prices[weight]
    known = [*WEIGHTS, *prices]
    raise ConfigError(unknown("weight", weight, known, more=", or a Price"))
