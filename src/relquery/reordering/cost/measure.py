"""The share of a schedule that is reused: prefix hit count and rate in characters, and hits on
token ids.

Prompts come in the order sent, one at a time: each is answered before the next is looked up. Token
ids are compared, not hashes, so hits are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relquery import _native
from relquery._native import depths, prefix_hit_count
from relquery.arrays import Int64s
from relquery.errors import ConfigError
from relquery.reordering.cost.tokens import Tokens, prefix_tree
from relquery.reordering.items import Items, least_table

Fields = npt.NDArray[np.int16] | npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Depth:
    """The sharing of rows at one position of their field order.

    prefixes: distinct prefixes up to and including this position. rows: rows that hit a whole item
    here. hit_characters: characters hit here, in whole items and in the start of other items.
    """

    prefixes: int
    rows: int
    hit_characters: int


@dataclass(frozen=True, slots=True)
class CharacterHits:
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


def hits(items: Items, rows: Int64s, fields: Fields) -> CharacterHits:
    """Characters that each row shares with some row sent before it, not just with the last.

    An item is written "column: value" ("passage: value" in a bag). A row's hit is the longest
    prefix that it shares with an earlier row: whole items, then leading characters of the next
    item. This is what a cache without a size limit serves, except for token boundaries.
    """
    if items.slots.size == 0:
        return CharacterHits(0, 0, ())
    sent = items.rank[items.same[items.slots]]
    sequences = sent[fields, rows[:, None]]  # ranks in the order sent
    weight = np.zeros(len(items.rank), np.int64)
    weight[items.rank] = items.characters
    prefixes, whole, characters = depths(sequences, weight, items.shared, least_table(items.shared))
    return CharacterHits(
        int(characters.sum()),
        int(weight[sequences].sum()),
        tuple(
            Depth(int(p), int(r), int(c))
            for p, r, c in zip(prefixes, whole, characters, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True)
class HitReport:
    """Tokens sent, and how many of them each cache serves.

    previous: shared with the prompt sent just before. unlimited: shared with any earlier prompt.
    lru: in whole blocks, from a cache of `blocks` blocks of `block_size` tokens; None if not
    measured.
    """

    tokens: int
    previous: int
    unlimited: int
    lru: int | None
    blocks: int | None
    block_size: int

    def rate(self, hits: int) -> float:
        """Hits over tokens sent, from 0 to 1."""
        return hits / self.tokens if self.tokens else 0.0

    def __str__(self) -> str:
        kinds = [
            ("the previous prompt", self.previous),
            ("any earlier prompt (unlimited cache)", self.unlimited),
        ]
        if self.lru is not None:
            size = f"{self.blocks:,} blocks of {self.block_size}"
            kinds.append((f"an LRU cache of {size} tokens", self.lru))
        lines = [f"{self.rate(hits):6.1%}  {hits:,} tokens from {kind}" for kind, hits in kinds]
        return "\n".join([f"{self.tokens:,} tokens sent, of which hit:", *lines])


def measure_hits(tokens: Tokens, blocks: int | None = None, block_size: int = 16) -> HitReport:
    """Measure all caches; `blocks` None skips the LRU cache."""
    lru = None if blocks is None else int(lru_hits(tokens, blocks, block_size).sum())
    return HitReport(
        tokens=len(tokens.ids),
        previous=int(previous_hits(tokens).sum()),
        unlimited=int(unlimited_hits(tokens).sum()),
        lru=lru,
        blocks=blocks,
        block_size=block_size,
    )


def previous_hits(tokens: Tokens) -> Int64s:
    """(n,), longest common prefix with the prompt sent just before."""
    return _native.previous_hits(tokens.ids, tokens.offsets)


def unlimited_hits(tokens: Tokens) -> Int64s:
    """(n,), longest common prefix with any prompt sent before."""
    return prefix_tree(tokens).hits


def lru_hits(tokens: Tokens, blocks: int, block_size: int = 16) -> Int64s:
    """(n,), tokens in the leading whole blocks that a paged cache of `blocks` blocks holds.

    The least recently used blocks are evicted first. A block is identified by its tokens and all
    blocks before it. A prompt uses its whole blocks, last one first, as vLLM frees them: the tail
    of a prompt is evicted before its head. If a prompt has more blocks than the cache, the leading
    ones are kept. The partial last block and answers take no room. A fully cached prompt counts in
    full, although an engine computes its last token again.

    Raises ConfigError if either number is below 1.
    """
    for name, value in (("blocks", blocks), ("block_size", block_size)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; an LRU cache needs at least 1.")
    return _native.lru_hits(tokens.ids, tokens.offsets, blocks, block_size)
