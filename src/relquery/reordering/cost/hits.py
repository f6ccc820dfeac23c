"""Counts how many leading tokens of each prompt a cache serves, on token ids.

Prompts come in the order sent, one at a time: each is answered before the next is looked up. All
code here compares token ids and does not rely on hashes, so hits are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from relquery import _native
from relquery.arrays import Int64s
from relquery.errors import ConfigError
from relquery.reordering.cost.tokens import Tokens, prefix_tree


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
