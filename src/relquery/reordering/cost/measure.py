"""How much a schedule shares: prefix hit count (PHC) and prefix hit rate (PHR)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relquery._native import depths, prefix_hit_count
from relquery.arrays import Int64s
from relquery.reordering.items import Items, least_table

Fields = npt.NDArray[np.int16] | npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Depth:
    """What rows share at one position of their field order.

    prefixes: distinct prefixes up to and including this position. rows: rows that hit a whole item
    here. hit_characters: characters hit here, in whole items and in the start of other items.
    """

    prefixes: int
    rows: int
    hit_characters: int


@dataclass(frozen=True, slots=True)
class Hits:
    """Characters hit in a cache without a size limit, and characters sent. depths: per position."""

    hit: int
    total: int
    depths: tuple[Depth, ...]

    @property
    def rate(self) -> float:
        """Prefix hit rate (PHR), from 0 to 1."""
        return self.hit / self.total if self.total else 0.0


def phc(items: Items, rows: Int64s, fields: Fields) -> int:
    """Prefix hit count (paper 000, eq. 1 and 2).

    Per row, the squared lengths of its leading items that equal the one at the same position of
    the row sent before; the first item that differs ends the count.
    """
    if items.slots.size == 0:
        return 0
    return prefix_hit_count(items.same[items.slots], items.lengths**2, rows, fields)


def hits(items: Items, rows: Int64s, fields: Fields) -> Hits:
    """Characters that each row shares with some row sent before it, not just with the last.

    An item is written "column: value" ("passage: value" in a bag). A row's hit is the longest
    prefix that it shares with an earlier row: whole items, then leading characters of the next
    item. This is what a cache without a size limit serves, except for token boundaries.
    """
    if items.slots.size == 0:
        return Hits(0, 0, ())
    sent = items.rank[items.same[items.slots]]
    sequences = sent[fields, rows[:, None]]  # ranks in the order sent
    weight = np.zeros(len(items.rank), np.int64)
    weight[items.rank] = items.characters
    prefixes, whole, characters = depths(sequences, weight, items.shared, least_table(items.shared))
    return Hits(
        int(characters.sum()),
        int(weight[sequences].sum()),
        tuple(
            Depth(int(p), int(r), int(c))
            for p, r, c in zip(prefixes, whole, characters, strict=True)
        ),
    )
