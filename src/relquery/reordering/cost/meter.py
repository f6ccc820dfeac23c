"""The worth of a hit on an item, and the cost of a schedule in tokens and money.

This decides between schedules, and is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from relquery.arrays import Int64s
from relquery.errors import ConfigError, unknown
from relquery.prices.price import Price
from relquery.prices.table import all_prices
from relquery.reordering.cost.billing import Bill, Blocks, bill
from relquery.reordering.cost.measure import (
    Fields,
    HitReport,
    hits,
    lru_hits,
    measure_hits,
    phc,
    unlimited_hits,
)
from relquery.reordering.cost.tokens import (
    Encode,
    EstimatedTokens,
    ItemTokens,
    Tokens,
    begin_alike,
    tokenize,
    tokenize_items,
)
from relquery.reordering.items import Beginnings, Items
from relquery.reordering.solvers.problem import Objective, side_by_side

BLOCK_SIZE = 16
# Up to this many characters, schedules are compared on whole prompts. Tokenising larger tables
# would take minutes. There each field is tokenised once, which misses tokens that span two fields.
CHARACTERS_COMPARED = 200_000

Sent = tuple[Int64s, Fields]  # rows, and by position the columns in the order sent


@dataclass(frozen=True, slots=True, eq=False)
class Meter:
    """Counts tokens and money; counts nothing without a tokenizer, price or cache size.

    prefix: the text before the fields of every row. cache_tokens: size of an LRU cache.
    """

    items: Items
    weighting: Weighting
    tokenizer: Encode | None
    prefix: str
    cache_tokens: int | None
    requests_per_minute: float | None

    @property
    def prices(self) -> bool:
        """Whether a price or a bounded cache decides."""
        return self.weighting.price is not None or self.cache_tokens is not None

    def best(self, schedules: Sequence[Sent]) -> Sent:
        """The cheapest if there is a price, or the one with the most hits in a bounded cache.

        Otherwise by weight. "tokens": the most tokens hit (characters without a tokenizer),
        including partial items. "squared": the highest PHC. Ties go to the most characters hit,
        then to the highest PHC, then to the first.
        """
        if len(schedules) == 1:
            return schedules[0]
        for score in (self._aim(), self._characters, self._phc):
            schedules = _most(score, schedules)
        return schedules[0]

    def _aim(self) -> Callable[[Sent], float]:
        counted = self.weighting.name == "tokens" and self.tokenizer is not None
        price = self.weighting.price
        if price is not None and price.breakpoints:
            return lambda schedule: -self._bill(self._in_blocks(*schedule), price).usd
        if self.prices or counted:
            return self._saved(self._tokens())
        return self._characters if self.weighting.name == "tokens" else self._phc

    def _saved(self, tokens_of: Callable[[Sent], Tokens]) -> Callable[[Sent], float]:
        """What a schedule saves in money, or tokens."""

        def saved(schedule: Sent) -> float:
            tokens = tokens_of(schedule)
            if self.weighting.price is not None:
                return -self._bill(tokens, self.weighting.price).usd
            if self.cache_tokens is not None:
                return int(lru_hits(tokens, self._blocks, BLOCK_SIZE).sum())
            return int(unlimited_hits(tokens).sum())

        return saved

    def _tokens(self) -> Callable[[Sent], Tokens]:
        """A schedule's prompts as tokens: tokenised whole if they are few, else assembled."""
        if int(self.items.characters[self.items.slots].sum()) <= CHARACTERS_COMPARED:
            return lambda schedule: self._tokenize(*schedule)
        pieces = self.weighting.pieces or tokenize_items(self.items, self._encode, self.prefix)
        same = self.items.same[self.items.slots]
        return lambda schedule: pieces.put_together(same[schedule[1], schedule[0][:, None]])

    def _tokenize(self, rows: Int64s, fields: Fields) -> Tokens:
        return tokenize(self.items.texts_in_order(rows, fields, self.prefix), self._encode)

    def _characters(self, schedule: Sent) -> int:
        return hits(self.items, *schedule).hit

    def _phc(self, schedule: Sent) -> int:
        return phc(self.items, *schedule)

    def read(self, rows: Int64s, fields: Fields) -> tuple[HitReport | None, Bill | None]:
        """Hits on tokens of whole prompts, and the bill: if it has breakpoints, on blocks."""
        if self.tokenizer is None and not self.prices:
            return None, None
        tokens = self._tokenize(rows, fields)
        blocks = None if self.cache_tokens is None else self._blocks
        price = self.weighting.price
        hit = measure_hits(tokens, blocks, BLOCK_SIZE)
        if price is None:
            return hit, None
        return hit, self._bill(
            self._in_blocks(rows, fields) if price.breakpoints else tokens, price
        )

    def _bill(self, prompts: Tokens | Blocks, price: Price) -> Bill:
        return bill(prompts, price, requests_per_minute=self.requests_per_minute)

    def _in_blocks(self, rows: Int64s, fields: Fields) -> Blocks:
        """The prompts as requests are marked: where fields end."""
        pieces = self.weighting.pieces
        assert pieces is not None  # a price counts tokens
        sent = self.items.same[self.items.slots[fields, rows[:, None]]]
        return Blocks.of(sent, pieces.items.lengths, len(pieces.prefix))

    @property
    def _encode(self) -> Encode:
        return self.tokenizer or EstimatedTokens()

    @property
    def _blocks(self) -> int:
        assert self.cache_tokens is not None
        return self.cache_tokens // BLOCK_SIZE


def _most(score: Callable[[Sent], float], schedules: Sequence[Sent]) -> list[Sent]:
    """All schedules with the highest score, in order."""
    if len(schedules) == 1:
        return list(schedules)
    tasks = [partial(score, each) for each in schedules]
    scores = side_by_side(tasks, np.zeros(1, np.bool_), schedules[0][1].size)
    return [each for each, scored in zip(schedules, scores, strict=True) if scored == max(scores)]


Weight = str | Price  # "tokens", "squared", a Price or the name of one
WEIGHTS = ("tokens", "squared")


class Weighting(NamedTuple):
    """weights: (items,). price: None if cost does not matter. pieces: None if not counted."""

    name: str
    weights: Int64s
    objective: Objective
    price: Price | None
    pieces: ItemTokens | None


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
