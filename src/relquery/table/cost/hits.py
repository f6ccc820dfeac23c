"""Token truth: how many leading tokens of each prompt a cache serves, counted on token ids.

Text is tokenised as whole prompts, so that a token that merges across two fields is counted as
what the model sees. Prompts come in the order sent, one at a time: each has been answered before
the next is looked up. Everything here compares token ids, no hash decides: hits are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from relquery.errors import ConfigError
from relquery.table.columns import Bools, Int32s, Int64s
from relquery.table.compiled import compiled

Encode = Callable[[list[str]], Sequence[Sequence[int]]]
FOREVER = 2**62  # a window that no schedule exceeds
BATCH = 4096  # texts handed to the tokenizer at once


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Prompts as token ids, in the order sent.

    ids: (tokens,), all prompts joined. offsets: (n + 1,), prompt i is
        `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: Int32s
    offsets: Int64s

    @classmethod
    def of(cls, prompts: Iterable[Sequence[int] | npt.NDArray[np.integer]]) -> Tokens:
        """From one sequence of ids per prompt."""
        arrays = [np.asarray(prompt, dtype=np.int32) for prompt in prompts]
        offsets = np.fromiter(accumulate(map(len, arrays), initial=0), np.int64, len(arrays) + 1)
        return cls(np.concatenate([np.empty(0, np.int32), *arrays]), offsets)

    @property
    def lengths(self) -> Int64s:
        """(n,), tokens of each prompt."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class HitReport:
    """Tokens sent, and how many of them each cache serves.

    previous: shared with the prompt sent just before. unlimited: shared with any earlier prompt.
    lru: in whole blocks, from a cache of `blocks` blocks of `block_size` tokens; None: not asked.
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


def tokenize(texts: Sequence[str], encode: Encode) -> Tokens:
    """Token ids of whole prompts.

    encode: gives one sequence of ids per text; it decides on special tokens.
    Raises ConfigError if it gives another number of sequences than it got texts.
    """
    prompts: list[npt.NDArray[np.int32]] = []
    for start in range(0, len(texts), BATCH):
        batch = list(texts[start : start + BATCH])
        encoded = encode(batch)
        if len(encoded) != len(batch):
            raise ConfigError(
                f"The tokenizer gave {len(encoded)} sequences for {len(batch)} texts. "
                "Pass a function that encodes each text by itself."
            )
        prompts.extend(np.asarray(ids, dtype=np.int32) for ids in encoded)
    return Tokens.of(prompts)


def measure_hits(tokens: Tokens, blocks: int | None = None, block_size: int = 16) -> HitReport:
    """All caches at once; `blocks` None leaves the LRU cache out."""
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
    return _previous(tokens.ids, tokens.offsets)


def unlimited_hits(tokens: Tokens) -> Int64s:
    """(n,), longest common prefix with any prompt sent before."""
    return prefix_tree(tokens).hits


def lru_hits(tokens: Tokens, blocks: int, block_size: int = 16) -> Int64s:
    """(n,), tokens in the leading whole blocks that a paged cache of `blocks` blocks holds.

    A block is known by its tokens and by all blocks before it. A prompt uses its whole blocks,
    the last of them first, as vLLM frees them: of one prompt, tails are evicted before heads. Of a
    prompt of more blocks than the cache has, the leading ones are kept. The unfilled last block
    and answers take no room; a prompt that is cached whole counts whole, though an engine computes
    its last token again.

    Raises ConfigError if either number is below 1.
    """
    for name, value in (("blocks", blocks), ("block_size", block_size)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; an LRU cache needs at least 1.")
    return _lru(tokens.ids, tokens.offsets, blocks, block_size)


@compiled
def _previous(ids: Int32s, offsets: Int64s) -> Int64s:
    hits = np.zeros(len(offsets) - 1, np.int64)
    for i in range(1, len(hits)):
        before, here, end = offsets[i - 1], offsets[i], offsets[i + 1]
        shared = 0
        most = min(here - before, end - here)
        while shared < most and ids[before + shared] == ids[here + shared]:
            shared += 1
        hits[i] = shared
    return hits


class PrefixTree(NamedTuple):
    """The prompts as a radix tree: nodes stand where prompts part or end.

    parent, depth: (nodes,), depth in tokens; roots have depth 0 and are their own parents.
    leaf: (n,), the node where each prompt ends. hits: (n,), tokens shared with earlier prompts.
    """

    parent: Int64s
    depth: Int64s
    leaf: Int64s
    hits: Int64s


class _Growth(NamedTuple):
    """A tree under construction. The edge to a node begins at `ids[start[node]]`.

    last: the last prompt through each node. table: open addressing by (parent, first token).
    """

    parent: Int64s
    depth: Int64s
    start: Int64s
    last: Int64s
    table: Int64s


def prefix_tree(tokens: Tokens, roots: Int64s | None = None, window: int = FOREVER) -> PrefixTree:
    """Build the tree of all prompts; O(tokens) time, O(prompts) space.

    roots: (n,), which cache each prompt is sent to, counted from 0; None: one for all.
    window: a prefix counts as hit if one of the `window` prompts before had it.
    """
    if roots is None:
        roots = np.zeros(len(tokens), np.int64)
    return _grow(tokens.ids, tokens.offsets, roots, window)


@compiled
def _grow(ids: Int32s, offsets: Int64s, roots: Int64s, window: int) -> PrefixTree:
    prompts = len(roots)
    nodes = roots.max() + 1 if prompts else 1
    tree = _new_growth(nodes, prompts)
    leaf, hits = np.zeros(prompts, np.int64), np.zeros(prompts, np.int64)
    for i in range(prompts):
        node, position, end, fresh = roots[i], offsets[i], offsets[i + 1], True
        while position < end:
            slot = _find(tree, ids, node, ids[position])
            child = tree.table[slot]
            if child < 0:
                child = nodes
                nodes += 1
                _add(tree, slot, child, node, position, end - position)
                position = end
            else:
                shared = _match(tree, ids, node, child, position, end)
                fresh = fresh and i - tree.last[child] <= window
                hits[i] += shared if fresh else 0
                if shared < tree.depth[child] - tree.depth[node]:
                    _split(tree, ids, slot, nodes, shared)
                    child = nodes
                    nodes += 1
                position += shared
            node = child
            tree.last[node] = i
        leaf[i] = node
    return PrefixTree(tree.parent[:nodes].copy(), tree.depth[:nodes].copy(), leaf, hits)


@compiled
def _new_growth(roots: int, prompts: int) -> _Growth:
    most = roots + 2 * prompts  # a prompt adds at most a leaf and a fork
    size = 16
    while size < 2 * most:
        size *= 2
    return _Growth(
        np.arange(most),
        np.zeros(most, np.int64),
        np.zeros(most, np.int64),
        np.full(most, -1, np.int64),
        np.full(size, -1, np.int64),
    )


@compiled
def _find(tree: _Growth, ids: Int32s, node: int, token: int) -> int:
    """The slot of the child of `node` whose edge begins with `token`, or the empty one for it."""
    last = len(tree.table) - 1
    slot = _mix(node, token) & last
    child = tree.table[slot]
    while child >= 0 and (tree.parent[child] != node or ids[tree.start[child]] != token):
        slot = (slot + 1) & last
        child = tree.table[slot]
    return slot


@compiled
def _mix(a: int, b: int) -> int:
    mixed = (a * 0x9E3779B1 + b) * 0x85EBCA77
    return mixed ^ (mixed >> 23)


@compiled
def _add(tree: _Growth, slot: int, new: int, parent: int, start: int, length: int) -> None:
    tree.table[slot] = new
    tree.parent[new] = parent
    tree.start[new] = start
    tree.depth[new] = tree.depth[parent] + length


@compiled
def _match(tree: _Growth, ids: Int32s, node: int, child: int, position: int, end: int) -> int:
    """Tokens that the edge from node to child shares with the prompt at `position`, at least 1."""
    start = tree.start[child]
    most = min(end - position, tree.depth[child] - tree.depth[node])
    shared = 1
    while shared < most and ids[start + shared] == ids[position + shared]:
        shared += 1
    return shared


@compiled
def _split(tree: _Growth, ids: Int32s, slot: int, fork: int, length: int) -> None:
    """Put a fork on the edge that `slot` holds, after `length` of its tokens."""
    child = tree.table[slot]
    _add(tree, slot, fork, tree.parent[child], tree.start[child], length)
    tree.parent[child] = fork
    tree.start[child] += length
    tree.table[_find(tree, ids, fork, ids[tree.start[child]])] = child


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
        mixed = _mix(mixed, ids[position + k])
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
    """Make a block the most recently used; 1 if it was not in the cache."""
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
