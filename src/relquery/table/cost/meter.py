"""What a schedule costs in tokens and money: to choose by, and to report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relquery.table.columns import Int64s
from relquery.table.cost.billing import Bill, bill
from relquery.table.cost.hits import HitReport, measure_hits
from relquery.table.cost.lru import lru_hits
from relquery.table.cost.pieces import EstimatedTokens, tokenize_items
from relquery.table.cost.price import Price
from relquery.table.cost.tokens import Encode, Tokens, tokenize
from relquery.table.items import Items
from relquery.table.measure import Fields

BLOCK_SIZE = 16

Sent = tuple[Int64s, Fields]  # rows, and by position the columns in the order sent


@dataclass(frozen=True, slots=True, eq=False)
class Meter:
    """Counts nothing where neither tokenizer, nor price, nor cache size is given.

    prefix: the text before the fields of every row. cache_tokens: size of an LRU cache.
    """

    items: Items
    price: Price | None
    tokenizer: Encode | None
    prefix: str
    cache_tokens: int | None
    requests_per_minute: float | None

    def best(self, schedules: Sequence[Sent]) -> Sent:
        """The cheapest, or that which hits most in the cache; else the first."""
        if len(schedules) == 1 or (self.price is None and self.cache_tokens is None):
            return schedules[0]
        pieces = tokenize_items(self.items, self._encode, self.prefix)
        same = self.items.same[self.items.slots]

        def score(schedule: Sent) -> float:
            rows, fields = schedule
            tokens = pieces.put_together(same[fields, rows[:, None]])
            if self.price is not None:
                return -self._bill(tokens, self.price).usd
            return float(lru_hits(tokens, self._blocks, BLOCK_SIZE).sum())

        return max(schedules, key=score)

    def read(self, rows: Int64s, fields: Fields) -> tuple[HitReport | None, Bill | None]:
        """Hits on tokens of whole prompts, and the bill."""
        if self.tokenizer is None and self.price is None and self.cache_tokens is None:
            return None, None
        texts = self.items.texts_in_order(rows, fields, self.prefix)
        tokens = tokenize(texts, self._encode)
        blocks = None if self.cache_tokens is None else self._blocks
        charged = None if self.price is None else self._bill(tokens, self.price)
        return measure_hits(tokens, blocks, BLOCK_SIZE), charged

    def _bill(self, tokens: Tokens, price: Price) -> Bill:
        return bill(tokens, price, requests_per_minute=self.requests_per_minute)

    @property
    def _encode(self) -> Encode:
        return self.tokenizer or EstimatedTokens()

    @property
    def _blocks(self) -> int:
        assert self.cache_tokens is not None
        return self.cache_tokens // BLOCK_SIZE
