"""How much a schedule shares: prefix hit count (PHC) and prefix hit rate (PHR)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relquery.arrays import Int32s, Int64s
from relquery.table.compiled import compiled
from relquery.table.items import Items
from relquery.table.prefixes import common_prefix, least_table

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
    return int(_phc(items.same[items.slots], items.lengths**2, rows, fields))


def hits(items: Items, rows: Int64s, fields: Fields) -> Hits:
    """Characters that each row shares with some row sent before it, not just with the last.

    An item is written "column: value" ("passage: value" in a bag). A row's hit is the longest
    prefix that it shares with an earlier row: whole items, then leading characters of the next
    item. This is what a cache without a size limit serves, except for token boundaries.
    """
    slots = fields.shape[1]
    if items.slots.size == 0:
        return Hits(0, 0, ())
    sent = items.rank[items.same[items.slots]]
    sequences = sent[fields, rows[:, None]]  # ranks in the order sent
    weight = np.zeros(len(items.rank), np.int64)
    weight[items.rank] = items.characters
    prefixes, whole, characters = (np.zeros(slots, np.int64) for _ in range(3))
    least = least_table(items.shared)
    _share(sequences, weight, items.shared, least, prefixes, whole, characters)
    return Hits(
        int(characters.sum()),
        int(weight[sequences].sum()),
        tuple(
            Depth(int(p), int(r), int(c))
            for p, r, c in zip(prefixes, whole, characters, strict=True)
        ),
    )


@compiled
def _phc(items: Int32s, weights: Int64s, rows: Int64s, fields: Fields) -> int:
    total = 0
    for i in range(1, len(rows)):
        for position in range(fields.shape[1]):
            item = items[fields[i, position], rows[i]]
            if item != items[fields[i - 1, position], rows[i - 1]]:
                break
            total += weights[item]
    return total


@compiled
def _share(
    sequences: Int32s,
    weight: Int64s,
    shared: Int64s,
    least: Int64s,
    prefixes: Int64s,
    whole: Int64s,
    characters: Int64s,
) -> None:
    """Add up, per position, what rows with equal prefixes share.

    Hits in an unlimited cache are all characters minus those in the trie of the rows, in any order
    of rows. Sorting the rows gives the trie.
    """
    slots = sequences.shape[1]
    order = np.arange(len(sequences))
    todo = [(0, len(order), 0)]
    while todo:
        start, stop, position = todo.pop()
        if position == slots:
            continue
        rows = order[start:stop]
        if len(rows) == 1:
            prefixes[position:] += 1
            continue
        keys = np.empty(len(rows), np.int64)
        for i in range(len(rows)):
            keys[i] = sequences[rows[i], position]
        by_key = np.argsort(keys, kind="mergesort")
        keys, rows = keys[by_key], rows[by_key]
        order[start:stop] = rows
        begin = 0
        for i in range(1, len(keys) + 1):
            if i < len(keys) and keys[i] == keys[begin]:
                continue
            prefixes[position] += 1
            whole[position] += i - begin - 1
            characters[position] += (i - begin - 1) * weight[keys[begin]]
            if i < len(keys):
                characters[position] += common_prefix(shared, least, keys[begin], keys[i])
            todo.append((start + begin, start + i, position + 1))
            begin = i
