"""The table that a schedule was made from, so that its prompts can be written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from relquery.arrays import Int32s, Int64s
from relquery.lazy import AT_ONCE
from relquery.prices.price import Price
from relquery.reordering.cost.measure import Fields
from relquery.reordering.cost.tokens import Encode, EstimatedTokens, tokenize
from relquery.reordering.items import BAG_LABEL, Items
from relquery.reordering.prompts.template import Template

Cells = dict[int, tuple[str, str]]
"""By item: the name that is written for its column, and its text."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A table and how it was measured.

    encode: gives token ids; None: tokens are estimated from words. price: None if the order was not
    chosen by cost. requests_per_minute: see `reorder`.
    """

    items: Items
    encode: Encode | None
    price: Price | None
    requests_per_minute: float | None

    @property
    def count(self) -> int:
        """Rows of the table."""
        return int(self.items.slots.shape[1])

    def sent(self, rows: Int64s, fields: Fields) -> Int32s:
        """(n, m), the items of some rows in the order sent."""
        items = self.items
        return items.same[items.slots[fields, rows[:, None]]]

    def cells(self, sent: Int32s) -> Cells:
        """The texts of some items. NULL is empty text."""
        items, cells = self.items, Cells()
        wanted = np.unique(sent)
        columns = np.searchsorted(items.offsets, wanted, side="right") - 1
        for column in np.unique(columns).tolist():
            chosen = wanted[columns == column]
            texts = items.texts[column].take(pa.array(chosen - items.offsets[column]))
            name = BAG_LABEL if items.in_bag(column) else items.names[column]
            for item, text in zip(chosen.tolist(), texts.to_pylist(), strict=True):
                cells[item] = name, text or ""
        return cells

    def sizes(self, template: Template) -> Int64s:
        """(items,), tokens of the line of each distinct item."""
        encode = self.encode or EstimatedTokens()
        lengths = [
            tokenize([template.line(*cell) for cell in self.cells(part).values()], encode).lengths
            for part in self._distinct()
        ]
        return np.concatenate([np.empty(0, np.int64), *lengths])

    def _distinct(self) -> Iterator[Int32s]:
        """The numbers of all items with a text of their own, some at a time."""
        count = int(self.items.offsets[-1])
        for start in range(0, count, AT_ONCE):
            yield np.arange(start, min(start + AT_ONCE, count), dtype=np.int32)

    def size_of(self, text: str) -> int:
        """Tokens of a text."""
        return len(tokenize([text], self.encode or EstimatedTokens()).ids) if text else 0

    def digests(self, rows: Int64s) -> Iterator[str]:
        """Of each row's cells and the names of its columns, in the table's order.

        The same for every schedule and template. NULL counts as empty text, as in prompts.
        """
        names = blake2b("\0".join(self.items.names).encode(), digest_size=4)
        for start in range(0, len(rows), AT_ONCE):
            items = self.items.slots[:, rows[start : start + AT_ONCE]]
            sent = self.items.same[items].T
            cells = self.cells(sent)
            for row in sent.tolist():
                digest = names.copy()
                for item in row:
                    digest.update(f"\0{cells[item][1]}".encode())
                yield digest.hexdigest()
