"""Rows as a trie of item sets.

A node represents the rows below it. Its label is the set of all items that these rows share beyond
the parent's items. The label has no order: items that always come together need none until it
matters. The worth of a trie is the sum over its nodes of (rows below - 1) x weight of the label.
This is the prefix hit count of its rows sent in depth-first order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.table.compiled import compiled

ROOT = 0
NONE = -1


class Trie(NamedTuple):
    """Nodes by number; the root is 0. A leaf represents one row.

    parent: (nodes,), NONE for the root and for free nodes. children: (nodes,), number of children.
    only: (nodes,), the exclusive or of its children: the child itself if there is just one.
    begin, end: (nodes,), items of the path before and up to the node.
    label: (nodes, m), the items of node x are `label[x, begin[x]:end[x]]`.
    leaf: (n,), of each row; NONE if it is not in the trie.
    shared: (items,), whether more than one row has the item; others are never searched for.
    free: stack of free nodes. sizes: (2,), free nodes; entries in use.
    bucket, next_entry, entry_parent, entry_item, entry_node: chains of entries (parent, item,
        child whose label has it). Entries are never removed: a stale entry is skipped, and when
        space runs out, all are rebuilt.
    stopped: (1,), set to end any work on the trie (see relquery.table.compiled).
    """

    parent: Int64s
    children: Int64s
    only: Int64s
    begin: Int64s
    end: Int64s
    label: Int32s
    leaf: Int64s
    shared: Bools
    free: Int64s
    sizes: Int64s
    bucket: Int32s
    next_entry: Int32s
    entry_parent: Int32s
    entry_item: Int32s
    entry_node: Int32s
    stopped: Bools


def new_trie(items: Int32s, stopped: Bools | None = None) -> Trie:
    """An empty trie with space for all rows. items: (m, n)."""
    slots, rows = items.shape
    nodes, entries = 2 * rows + 2, (3 * rows + 8) * slots
    buckets = 1 << int(max(rows * slots, 16) - 1).bit_length()
    parent = np.full(nodes, NONE, np.int64)
    return Trie(
        parent=parent,
        children=np.zeros(nodes, np.int64),
        only=np.zeros(nodes, np.int64),
        begin=np.zeros(nodes, np.int64),
        end=np.zeros(nodes, np.int64),
        label=np.empty((nodes, slots), np.int32),
        leaf=np.full(rows, NONE, np.int64),
        shared=np.bincount(items.ravel()) > 1 if items.size else np.empty(0, np.bool_),
        free=np.arange(nodes - 1, 0, -1, dtype=np.int64),
        sizes=np.array([nodes - 1, 0]),
        bucket=np.full(buckets, NONE, np.int32),
        next_entry=np.empty(entries, np.int32),
        entry_parent=np.empty(entries, np.int32),
        entry_item=np.empty(entries, np.int32),
        entry_node=np.empty(entries, np.int32),
        stopped=np.zeros(1, np.bool_) if stopped is None else stopped,
    )


@compiled
def plant(trie: Trie, items: Int32s, order: Int64s, slots: Int32s) -> None:
    """Fill an empty trie with a schedule: rows in order, and the slots of each row by row id.

    Rows that share leading items are adjacent in the schedule.
    """
    path = np.zeros(items.shape[0] + 2, np.int64)  # nodes from the root to the last leaf
    depth = 0
    for i in range(len(order)):
        if trie.stopped[0]:
            return
        row = order[i]
        shared = 0
        if i > 0:
            before = order[i - 1]
            while shared < slots.shape[1] and (
                items[slots[row, shared], row] == items[slots[before, shared], before]
            ):
                shared += 1
        while depth > 0 and trie.begin[path[depth]] >= shared:
            depth -= 1
        node = path[depth]
        if node != ROOT and (trie.end[node] > shared or trie.children[node] == 0):
            node = cut(trie, node, shared)
            path[depth] = node
        leaf = add_leaf(trie, node, row)
        for k in range(shared, slots.shape[1]):
            trie.label[leaf, k] = items[slots[row, k], row]
        depth += 1
        path[depth] = leaf
    enter_all(trie)


@compiled
def cut(trie: Trie, node: int, middle: int) -> int:
    """Move the items of a node's label before `middle` to a new node above it."""
    trie.sizes[0] -= 1
    upper = int(trie.free[trie.sizes[0]])
    parent = trie.parent[node]
    for k in range(trie.begin[node], middle):
        trie.label[upper, k] = trie.label[node, k]
    trie.parent[upper], trie.children[upper], trie.only[upper] = parent, 1, node
    trie.begin[upper], trie.end[upper] = trie.begin[node], middle
    trie.only[parent] ^= node ^ upper
    trie.parent[node], trie.begin[node] = upper, middle
    return upper


@compiled
def add_leaf(trie: Trie, parent: int, row: int) -> int:
    trie.sizes[0] -= 1
    leaf = int(trie.free[trie.sizes[0]])
    trie.parent[leaf], trie.children[leaf], trie.only[leaf] = parent, 0, 0
    trie.begin[leaf], trie.end[leaf] = trie.end[parent], trie.label.shape[1]
    trie.children[parent] += 1
    trie.only[parent] ^= leaf
    trie.leaf[row] = leaf
    return leaf


@compiled
def release(trie: Trie, node: int) -> None:
    trie.parent[node] = NONE
    trie.free[trie.sizes[0]] = node
    trie.sizes[0] += 1


@compiled
def bucket_of(trie: Trie, node: int, item: int) -> int:
    mixed = (node * 0x9E3779B1 + item) * 0x85EBCA77
    return (mixed ^ (mixed >> 15)) & (len(trie.bucket) - 1)


@compiled
def enter(trie: Trie, node: int) -> None:
    """Add entries for a node under the items of its label that others may share."""
    used = trie.sizes[1]
    parent = trie.parent[node]
    for k in range(trie.begin[node], trie.end[node]):
        item = trie.label[node, k]
        if trie.shared[item]:
            bucket = bucket_of(trie, parent, item)
            trie.entry_parent[used], trie.entry_item[used] = parent, item
            trie.entry_node[used], trie.next_entry[used] = node, trie.bucket[bucket]
            trie.bucket[bucket] = used
            used += 1
    trie.sizes[1] = used


@compiled
def make_room(trie: Trie) -> None:
    """Rebuild the entries if space is short; a move adds at most four labels."""
    if trie.sizes[1] + 4 * trie.label.shape[1] > len(trie.next_entry):
        enter_all(trie)


@compiled
def enter_all(trie: Trie) -> None:
    trie.sizes[1] = 0
    trie.bucket[:] = NONE
    for node in range(1, len(trie.parent)):
        if trie.parent[node] != NONE:
            enter(trie, node)


@compiled
def is_sound(trie: Trie, items: Int32s) -> Bools:
    """(n,), whether the path to each row's leaf has exactly the row's items. For tests."""
    slots, rows = items.shape
    sound = np.zeros(rows, np.bool_)
    path = np.empty(slots, np.int32)
    for row in range(rows):
        node = trie.leaf[row]
        while node != ROOT:
            path[trie.begin[node] : trie.end[node]] = trie.label[
                node, trie.begin[node] : trie.end[node]
            ]
            node = trie.parent[node]
        sound[row] = np.array_equal(np.sort(path), np.sort(items[:, row]))
    return sound
