"""A paged cache of limited size that evicts the least recently used blocks first."""

from __future__ import annotations

from relquery import _native
from relquery.arrays import Int64s
from relquery.errors import ConfigError
from relquery.table.cost.tokens import Tokens


def lru_hits(tokens: Tokens, blocks: int, block_size: int = 16) -> Int64s:
    """(n,), tokens in the leading whole blocks that a paged cache of `blocks` blocks holds.

    A block is identified by its tokens and all blocks before it. A prompt uses its whole blocks,
    last one first, as vLLM frees them: the tail of a prompt is evicted before its head. If a prompt
    has more blocks than the cache, the leading ones are kept. The partial last block and answers
    take no room. A fully cached prompt counts in full, although an engine computes its last token
    again.

    Raises ConfigError if either number is below 1.
    """
    for name, value in (("blocks", blocks), ("block_size", block_size)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; an LRU cache needs at least 1.")
    return _native.lru_hits(tokens.ids, tokens.offsets, blocks, block_size)
