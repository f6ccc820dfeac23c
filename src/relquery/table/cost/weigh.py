"""What a hit on an item is worth: squared length, tokens saved, or money."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from relquery.errors import ConfigError, did_you_mean
from relquery.table.columns import Int64s
from relquery.table.cost.price import PRICES, Price, find_price
from relquery.table.cost.tokens import BATCH, Encode
from relquery.table.items import Items
from relquery.table.solvers.objective import Objective

Weight = str | Price  # "squared", "tokens", a Price or the name of one
WEIGHTS = ("squared", "tokens")

_PIECE = re.compile(r" ?[^\W\d_]{1,6}|\d{1,3}|\s|[^\w\s]|_")


class Weighting(NamedTuple):
    """weights: (items,). price: None where money is no matter."""

    name: str
    weights: Int64s
    objective: Objective
    price: Price | None


def weigh(items: Items, weight: Weight, encode: Encode | None, prefix: str) -> Weighting:
    """What items are worth by `weight`; prefix: the text before the fields of every row.

    squared: characters of the value, squared (paper 000, eq. 2). tokens: tokens of "column:
    value", or its characters where no tokenizer is given. A price: tokens, counted from the
    provider's minimum in its steps, at what reading saves and writing costs.

    Raises ConfigError for an unknown name.
    """
    if weight == "squared":
        return Weighting(weight, items.lengths**2, Objective(), None)
    if weight == "tokens":
        sizes = items.characters if encode is None else _count_tokens(items, encode)
        return Weighting(weight, sizes, Objective(), None)
    price = weight if isinstance(weight, Price) else _find_price(weight)
    encode = encode or EstimatedTokens()
    objective = Objective(
        start=len(encode([prefix])[0]) if prefix else 0,
        minimum=price.minimum,
        granularity=price.granularity,
        read=(price.uncached - price.read) / price.uncached,
        write=(price.write - price.uncached) / price.uncached,
    )
    return Weighting(price.name, _count_tokens(items, encode), objective, price)


def _find_price(name: str) -> Price:
    if name in PRICES:
        return find_price(name)
    known = [*WEIGHTS, *PRICES]
    raise ConfigError(
        f"weight is '{name}'. Weights: {', '.join(known)}, or a Price." + did_you_mean(name, known)
    )


def _count_tokens(items: Items, encode: Encode) -> Int64s:
    """(items,), tokens of "column: value" and the line break after it, each text by itself."""
    counts = np.zeros(len(items.lengths), np.int64)
    for column, texts in enumerate(items.texts):
        offset = int(items.offsets[column])
        label = items.label_of(column)
        lines = [f"{label}{text}\n" for text in pc.fill_null(texts, "").to_pylist()]
        for start in range(0, len(lines), BATCH):
            encoded = encode(lines[start : start + BATCH])
            for k, ids in enumerate(encoded, offset + start):
                counts[k] = len(ids)
    return counts[items.same]


class EstimatedTokens:
    """Pieces of words as a stand-in for tokens, where no tokenizer is at hand.

    English text comes to about as many pieces as it has tokens of a common vocabulary.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __call__(self, texts: list[str]) -> list[list[int]]:
        """Ids of the pieces of each text; equal pieces have equal ids in all calls."""
        ids = self._ids
        return [
            [ids.setdefault(piece, len(ids)) for piece in _PIECE.findall(text)] for text in texts
        ]
