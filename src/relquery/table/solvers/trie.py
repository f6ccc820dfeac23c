"""Rows as a trie of item sets, and local search on it.

A node stands for the rows below it; its label is the set of all items that these rows share beyond
what its parent's do, in no order: items that always come together never have to be put in one
before it matters. What a trie is worth is the sum over its nodes of (rows below - 1) x weight of
the label, the prefix hit count of its rows sent in depth-first order.

A row is inserted where its own hit is highest: below a node whose label it holds entirely, or into
a node whose label it shares in part, which is split. Taking a row out and inserting it again can
only gain, so that passes over all rows climb to a local optimum. No column is chosen for a whole
segment: passages of a bag, and fields of wide tables, find the rows that they fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.table.columns import Bools, Int32s, Int64s
from relquery.table.compiled import compiled

LARGEST_GROUP = 8  # rows that are asked together
MOST_ENTRIES = 64  # looked at per node and item, the newest first: common items are in very many
ROOT = 0
NONE = -1


class Trie(NamedTuple):
    """Nodes by number; the root is 0. A leaf stands for one row.

    parent, children: (nodes,), NONE for the root and for free nodes; how many a node has.
    only: (nodes,), the exclusive or of its children: the child itself where there is one.
    begin, end: (nodes,), items of the path before and up to the node.
    label: (nodes, m), the items of node x are `label[x, begin[x]:end[x]]`.
    leaf: (n,), of each row; NONE if it is not in the trie.
    free: stack of free nodes. sizes: (2,), free nodes; entries in use.
    bucket, next_entry, entry_parent, entry_item, entry_node: chains of entries (parent, item,
        child whose label has it). Entries are never removed: one that no longer holds is passed
        over, and when space is short all are made anew.
    """

    parent: Int32s
    children: Int32s
    only: Int32s
    begin: Int32s
    end: Int32s
    label: Int32s
    leaf: Int32s
    free: Int32s
    sizes: Int64s
    bucket: Int32s
    next_entry: Int32s
    entry_parent: Int32s
    entry_item: Int32s
    entry_node: Int32s


class Search(NamedTuple):
    """Space for insertions.

    weights: (items,), 0 where an item is worth nothing or only one row has it.
    in_row: (items,), the number of the search whose row has the item. seen: (nodes,), the same for
        nodes compared. todo, hits: nodes whose children to compare, and the hit down to them.
    settled: (n,), first rows of groups that gained nothing when broken up.
    counters: (2,), number of the search; entries looked at, a measure of time.
    """

    weights: Int64s
    in_row: Int64s
    seen: Int64s
    todo: Int32s
    hits: Int64s
    settled: Bools
    counters: Int64s


class Found(NamedTuple):
    """Where a row hits most: node (ROOT for nowhere), worth of the hit, whether it holds all of
    the node's label."""

    node: int
    hit: int
    whole: bool


def new_trie(items: Int32s) -> Trie:
    """An empty trie with space for all rows. items: (m, n)."""
    slots, rows = items.shape
    nodes, entries = 2 * rows + 2, (3 * rows + 8) * slots
    buckets = 1 << int(max(rows * slots, 16) - 1).bit_length()
    parent = np.full(nodes, NONE, np.int32)
    return Trie(
        parent=parent,
        children=np.zeros(nodes, np.int32),
        only=np.zeros(nodes, np.int32),
        begin=np.zeros(nodes, np.int32),
        end=np.zeros(nodes, np.int32),
        label=np.empty((nodes, slots), np.int32),
        leaf=np.full(rows, NONE, np.int32),
        free=np.arange(nodes - 1, 0, -1, dtype=np.int32),
        sizes=np.array([nodes - 1, 0]),
        bucket=np.full(buckets, NONE, np.int32),
        next_entry=np.empty(entries, np.int32),
        entry_parent=np.empty(entries, np.int32),
        entry_item=np.empty(entries, np.int32),
        entry_node=np.empty(entries, np.int32),
    )


def new_search(items: Int32s, weights: Int64s) -> Search:
    """items: (m, n)."""
    nodes = 2 * items.shape[1] + 2
    shared = np.bincount(items.ravel(), minlength=len(weights)) > 1
    return Search(
        weights=np.where(shared, weights, 0),
        in_row=np.zeros(len(weights), np.int64),
        seen=np.zeros(nodes, np.int64),
        todo=np.empty(nodes, np.int32),
        hits=np.empty(nodes, np.int64),
        settled=np.zeros(items.shape[1], np.bool_),
        counters=np.zeros(2, np.int64),
    )


@compiled
def plant(trie: Trie, search: Search, items: Int32s, order: Int64s, slots: Int32s) -> None:
    """Fill an empty trie with a schedule: rows in order, and the slots of each row by row id.

    Rows that share leading items stand together in it.
    """
    path = np.zeros(items.shape[0] + 2, np.int32)  # nodes from the root to the last leaf
    depth = 0
    for i in range(len(order)):
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
            node = _cut(trie, node, shared)
            path[depth] = node
        leaf = _new_leaf(trie, node, row)
        for k in range(shared, slots.shape[1]):
            trie.label[leaf, k] = items[slots[row, k], row]
        depth += 1
        path[depth] = leaf
    _enter_all(trie, search)


@compiled
def insert_all(trie: Trie, search: Search, items: Int32s) -> None:
    """Insert the rows that are not in, in their order."""
    for row in range(items.shape[1]):
        if trie.leaf[row] == NONE:
            _make_room(trie, search)
            _put_in(trie, search, items, row, _find(trie, search, items, row, NONE))


@compiled
def move_rows(trie: Trie, search: Search, items: Int32s, most: int) -> int:
    """Take out every row and insert it again; gives the weight gained.

    Stops where `most` steps have been made.
    """
    gained = 0
    stop = search.counters[1] + most
    _enter_all(trie, search)
    for row in range(items.shape[1]):
        if search.counters[1] > stop:
            break
        _make_room(trie, search)
        hit = _take_out(trie, search, row)
        found = _find(trie, search, items, row, NONE)
        gained += found.hit - hit
        _put_in(trie, search, items, row, found)
    return gained


@compiled
def break_groups(trie: Trie, search: Search, items: Int32s, most: int) -> int:
    """Break up each group of few rows whose rows hit more apart; gives the weight gained.

    A row that leaves alone gives up its hit and leaves the first row of its group without
    company: what both might gain elsewhere shows only when both are asked.
    """
    gained = 0
    stop = search.counters[1] + most
    _enter_all(trie, search)
    begin, rows = _rows_by_parent(trie)
    for node in range(1, len(begin) - 1):
        if search.counters[1] > stop:
            break
        group = rows[begin[node] : begin[node + 1]]
        if not _is_group(trie, node, group) or search.settled[group[0]]:
            continue
        apart = 0
        for row in group:
            apart += _find(trie, search, items, row, node).hit
        above = _hit(trie, search, trie.parent[node])
        together = (len(group) - 1) * _hit(trie, search, node) + above
        if apart <= together:
            continue
        gain = -together
        for row in group:
            _make_room(trie, search)
            _take_out(trie, search, row)
        for row in group:
            _make_room(trie, search)
            found = _find(trie, search, items, row, NONE)
            _put_in(trie, search, items, row, found)
            gain += found.hit
        # Two rows may have wanted the same third one, which only the first then got.
        search.settled[group[0]] = gain <= 0
        gained += gain
    return gained


@compiled
def _rows_by_parent(trie: Trie) -> tuple[Int64s, Int64s]:
    """(begin, rows): the rows whose leaf is a child of x are `rows[begin[x]:begin[x + 1]]`."""
    begin = np.zeros(len(trie.parent) + 1, np.int64)
    for leaf in trie.leaf:
        begin[trie.parent[leaf] + 1] += 1
    for node in range(len(trie.parent)):
        begin[node + 1] += begin[node]
    rows = np.empty(len(trie.leaf), np.int64)
    fill = begin.copy()
    for row in range(len(trie.leaf)):
        parent = trie.parent[trie.leaf[row]]
        rows[fill[parent]] = row
        fill[parent] += 1
    return begin, rows


@compiled
def _is_group(trie: Trie, node: int, rows: Int64s) -> bool:
    """Whether these few rows are still all that is below a node."""
    if not 2 <= len(rows) <= LARGEST_GROUP or trie.parent[node] == NONE:
        return False
    if trie.children[node] != len(rows):
        return False
    gone = 0
    for row in rows:
        gone += trie.parent[trie.leaf[row]] != node
    return gone == 0


@compiled
def _hit(trie: Trie, search: Search, node: int) -> int:
    """Weight of the path from the root down to a node."""
    hit = 0
    while node != ROOT:
        for k in range(trie.begin[node], trie.end[node]):
            hit += search.weights[trie.label[node, k]]
        node = trie.parent[node]
    return hit


@compiled
def _find(trie: Trie, search: Search, items: Int32s, row: int, without: int) -> Found:
    """Where a row hits most, the nodes below `without` aside."""
    search.counters[0] += 1
    number = search.counters[0]
    if without != NONE:
        search.seen[without] = number
    for slot in range(items.shape[0]):
        search.in_row[items[slot, row]] = number
    best, best_hit, best_whole = ROOT, 0, True
    search.todo[0], search.hits[0] = ROOT, 0
    left = 1
    while left > 0:
        left -= 1
        node, hit = search.todo[left], search.hits[left]
        for slot in range(items.shape[0]):
            item = items[slot, row]
            if search.weights[item] == 0:
                continue
            entry = trie.bucket[_bucket(trie, node, item)]
            looked = 0
            while entry != NONE and looked < MOST_ENTRIES:
                looked += 1
                child = trie.entry_node[entry]
                if (
                    trie.entry_parent[entry] == node
                    and trie.entry_item[entry] == item
                    and trie.parent[child] == node
                    and search.seen[child] != number
                ):
                    search.seen[child] = number
                    more, whole = _overlap(trie, search, child, number)
                    if hit + more > best_hit:
                        best, best_hit, best_whole = child, hit + more, whole
                    if whole and trie.children[child] > 0:
                        search.todo[left], search.hits[left] = child, hit + more
                        left += 1
                entry = trie.next_entry[entry]
            search.counters[1] += 1 + looked
    return Found(best, best_hit, best_whole)


@compiled
def _overlap(trie: Trie, search: Search, node: int, number: int) -> tuple[int, bool]:
    """(weight of a node's label that the row holds too, whether it holds all of it)."""
    begin, end = trie.begin[node], trie.end[node]
    total, held = 0, 0
    for k in range(begin, end):
        item = trie.label[node, k]
        if search.in_row[item] == number:
            total += search.weights[item]
            held += 1
    return total, held == end - begin


@compiled
def _put_in(trie: Trie, search: Search, items: Int32s, row: int, found: Found) -> None:
    number = search.counters[0]
    node = found.node
    if node != ROOT and not (found.whole and trie.children[node] > 0):
        middle = trie.begin[node]
        for k in range(trie.begin[node], trie.end[node]):
            item = trie.label[node, k]
            if search.in_row[item] == number:
                trie.label[node, k] = trie.label[node, middle]
                trie.label[node, middle] = item
                middle += 1
        below, node = node, _cut(trie, node, middle)
        _enter(trie, search, node)
        _enter(trie, search, below)
    above = node
    while above != ROOT:
        for k in range(trie.begin[above], trie.end[above]):
            search.in_row[trie.label[above, k]] = 0
        above = trie.parent[above]
    leaf = _new_leaf(trie, node, row)
    k = trie.begin[leaf]
    for slot in range(items.shape[0]):
        if search.in_row[items[slot, row]] == number:
            trie.label[leaf, k] = items[slot, row]
            k += 1
    _enter(trie, search, leaf)


@compiled
def _take_out(trie: Trie, search: Search, row: int) -> int:
    """Remove a row; gives what its hit was worth. A node left with one child joins it."""
    leaf = trie.leaf[row]
    node = trie.parent[leaf]
    hit = _hit(trie, search, node)
    trie.children[node] -= 1
    trie.only[node] ^= leaf
    _release(trie, leaf)
    trie.leaf[row] = NONE
    if node != ROOT and trie.children[node] == 1:
        child, parent = trie.only[node], trie.parent[node]
        for k in range(trie.begin[node], trie.end[node]):
            trie.label[child, k] = trie.label[node, k]
        trie.begin[child] = trie.begin[node]
        trie.parent[child] = parent
        trie.only[parent] ^= node ^ child
        _release(trie, node)
        _enter(trie, search, child)
    return hit


@compiled
def _cut(trie: Trie, node: int, middle: int) -> int:
    """Give the items of a node's label before `middle` to a new node above it."""
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
def _new_leaf(trie: Trie, parent: int, row: int) -> int:
    trie.sizes[0] -= 1
    leaf = int(trie.free[trie.sizes[0]])
    trie.parent[leaf], trie.children[leaf], trie.only[leaf] = parent, 0, 0
    trie.begin[leaf], trie.end[leaf] = trie.end[parent], trie.label.shape[1]
    trie.children[parent] += 1
    trie.only[parent] ^= leaf
    trie.leaf[row] = leaf
    return leaf


@compiled
def _release(trie: Trie, node: int) -> None:
    trie.parent[node] = NONE
    trie.free[trie.sizes[0]] = node
    trie.sizes[0] += 1


@compiled
def _bucket(trie: Trie, node: int, item: int) -> int:
    mixed = (node * 0x9E3779B1 + item) * 0x85EBCA77
    return (mixed ^ (mixed >> 15)) & (len(trie.bucket) - 1)


@compiled
def _make_room(trie: Trie, search: Search) -> None:
    """A move enters at most four labels."""
    if trie.sizes[1] + 4 * trie.label.shape[1] > len(trie.next_entry):
        _enter_all(trie, search)


@compiled
def _enter(trie: Trie, search: Search, node: int) -> None:
    """Make a node known by the items of its label that others may share."""
    used = trie.sizes[1]
    parent = trie.parent[node]
    for k in range(trie.begin[node], trie.end[node]):
        item = trie.label[node, k]
        if search.weights[item] > 0:
            bucket = _bucket(trie, parent, item)
            trie.entry_parent[used], trie.entry_item[used] = parent, item
            trie.entry_node[used], trie.next_entry[used] = node, trie.bucket[bucket]
            trie.bucket[bucket] = used
            used += 1
    trie.sizes[1] = used


@compiled
def _enter_all(trie: Trie, search: Search) -> None:
    trie.sizes[1] = 0
    trie.bucket[:] = NONE
    for node in range(1, len(trie.parent)):
        if trie.parent[node] != NONE:
            _enter(trie, search, node)


@compiled
def is_sound(trie: Trie, items: Int32s) -> Bools:
    """(n,), whether the path to each row's leaf holds exactly the row's items: for tests."""
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
