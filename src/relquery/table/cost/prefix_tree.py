"""A radix tree of prompts by tokens, which contains every prefix that two prompts share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.table.compiled import compiled
from relquery.table.cost.tokens import Tokens

FOREVER = 2**62  # a window that no schedule exceeds


class PrefixTree(NamedTuple):
    """The prompts as a radix tree: there is a node wherever prompts diverge or end.

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
    window: a prefix counts as a hit if one of the `window` prompts before had it.
    """
    if roots is None:
        roots = np.zeros(len(tokens), np.int64)
    return PrefixTree(*_grow(tokens.ids, tokens.offsets, roots, window))


@compiled
def _grow(
    ids: Int32s, offsets: Int64s, roots: Int64s, window: int
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
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
    return tree.parent[:nodes].copy(), tree.depth[:nodes].copy(), leaf, hits


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
    slot = mix(node, token) & last
    child = tree.table[slot]
    while child >= 0 and (tree.parent[child] != node or ids[tree.start[child]] != token):
        slot = (slot + 1) & last
        child = tree.table[slot]
    return slot


@compiled
def mix(a: int, b: int) -> int:
    # interpreted, `b` may have 32 bits, and the products must wrap around as in machine code
    mixed: int = (np.int64(a) * 0x9E3779B1 + b) * 0x85EBCA77  # type: ignore[assignment]
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
    """Split the edge in `slot` with a fork after `length` of its tokens."""
    child = tree.table[slot]
    _add(tree, slot, fork, tree.parent[child], tree.start[child], length)
    tree.parent[child] = fork
    tree.start[child] += length
    tree.table[_find(tree, ids, fork, ids[tree.start[child]])] = child
