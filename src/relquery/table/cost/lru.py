"""A paged cache of limited size that evicts the least recently used blocks first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.errors import ConfigError
from relquery.table.compiled import compiled, is_ready
from relquery.table.cost.prefix_tree import mix
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
    return _lru(tokens.ids, tokens.offsets, blocks, block_size)


def is_compiled() -> bool:
    """Whether counting need not be compiled first."""
    return is_ready(_lru)


class _Pages(NamedTuple):
    """Distinct blocks, numbered from 1, and the LRU list of those in the cache, closed by 0.

    parent: the block before. start: where in `ids` it occurred first. table: open addressing.
    """

    parent: Int64s
    start: Int64s
    table: Int64s
    cached: Bools
    older: Int64s
    newer: Int64s


@compiled
def _lru(ids: Int32s, offsets: Int64s, blocks: int, size: int) -> Int64s:
    wanted = np.minimum(np.diff(offsets) // size, blocks)
    pages = _new_pages(wanted.sum())
    hits = np.zeros(len(wanted), np.int64)
    path = np.zeros(wanted.max() if len(wanted) else 0, np.int64)
    distinct, held = 0, 0
    for i in range(len(wanted)):
        page, hitting = 0, True
        for k in range(wanted[i]):
            position = offsets[i] + k * size
            slot = _find_page(pages, ids, page, position, size)
            if pages.table[slot] == 0:
                distinct += 1
                pages.table[slot] = distinct
                pages.parent[distinct], pages.start[distinct] = page, position
            page = path[k] = pages.table[slot]
            hitting = hitting and pages.cached[page]
            hits[i] += size if hitting else 0
        for k in range(wanted[i] - 1, -1, -1):
            held += _use(pages, path[k])
        while held > blocks:
            held -= _drop(pages, pages.newer[0])
    return hits


@compiled
def _new_pages(most: int) -> _Pages:
    size = 16
    while size < 2 * most:
        size *= 2
    return _Pages(
        np.zeros(most + 1, np.int64),
        np.zeros(most + 1, np.int64),
        np.zeros(size, np.int64),
        np.zeros(most + 1, np.bool_),
        np.zeros(most + 1, np.int64),
        np.zeros(most + 1, np.int64),
    )


@compiled
def _find_page(pages: _Pages, ids: Int32s, parent: int, position: int, size: int) -> int:
    """The slot of the block at `position` after block `parent`, or the empty one for it."""
    mixed = parent
    for k in range(size):
        mixed = mix(mixed, ids[position + k])
    last = len(pages.table) - 1
    slot = mixed & last
    while pages.table[slot] and not _is_page(pages, ids, pages.table[slot], parent, position, size):
        slot = (slot + 1) & last
    return slot


@compiled
def _is_page(pages: _Pages, ids: Int32s, page: int, parent: int, position: int, size: int) -> bool:
    if pages.parent[page] != parent:
        return False
    start, same = pages.start[page], 0
    while same < size and ids[start + same] == ids[position + same]:
        same += 1
    return same == size


@compiled
def _use(pages: _Pages, page: int) -> int:
    """Make a block the most recently used. Returns 1 if it was not in the cache."""
    added = 1 - _drop(pages, page) if pages.cached[page] else 1
    newest = pages.older[0]
    pages.newer[newest], pages.older[page] = page, newest
    pages.newer[page], pages.older[0] = 0, page
    pages.cached[page] = True
    return added


@compiled
def _drop(pages: _Pages, page: int) -> int:
    older, newer = pages.older[page], pages.newer[page]
    pages.newer[older], pages.older[newer] = newer, older
    pages.cached[page] = False
    return 1
