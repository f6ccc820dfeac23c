"""Local search on a trie of item sets: moves rows, singly and in small groups, to where they hit
more.

A row is inserted where its own hit is highest: below a node whose label it contains entirely, or
into a node whose label it shares in part. That node is then split. No column is chosen for a whole
segment, so passages of a bag, and fields of wide tables, can each match the rows that fit them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.table.compiled import compiled
from relquery.table.solvers.search.trie import (
    NONE,
    ROOT,
    Trie,
    add_leaf,
    bucket_of,
    cut,
    enter,
    enter_all,
    make_room,
    release,
)

LARGEST_GROUP = 8  # maximum number of rows in a group that is broken up
ITEMS_PER_STEP = 16  # items of a label compared per step; shorter labels are free
SHORT_LOOK = 2  # entries per slot
NO_LIMIT = 2**61
MOST_ENTRIES = 64  # checked per node and item, newest first: common items have very many


class Search(NamedTuple):
    """Space for insertions.

    weights: (items,).
    in_row: (items,), the number of the search whose row has the item. seen: (nodes,), the same for
        nodes compared. todo, hits: nodes whose children to compare, and the hit down to them.
    settled: (n,), first rows of groups that gained nothing when broken up.
    counters: (2,), number of the search; entries looked at, a measure of time.
    """

    weights: Int64s
    in_row: Int64s
    seen: Int64s
    todo: Int64s
    hits: Int64s
    settled: Bools
    counters: Int64s


class Found(NamedTuple):
    """Where a row hits most: the node (ROOT for nowhere), the worth of the hit, and whether the row
    contains the node's whole label."""

    node: int
    hit: int
    whole: bool


def new_search(items: Int32s, weights: Int64s) -> Search:
    """items: (m, n)."""
    nodes = 2 * items.shape[1] + 2
    return Search(
        weights=weights,
        in_row=np.zeros(len(weights), np.int64),
        seen=np.zeros(nodes, np.int64),
        todo=np.empty(nodes, np.int64),
        hits=np.empty(nodes, np.int64),
        settled=np.zeros(items.shape[1], np.bool_),
        counters=np.zeros(2, np.int64),
    )


@compiled
def insert_all(
    trie: Trie, search: Search, items: Int32s, order: Int64s, most: int = NO_LIMIT
) -> None:
    """Insert the missing rows of `order`; after `most` steps, search only briefly for each row."""
    stop = search.counters[1] + most
    for row in order:
        if trie.stopped[0]:
            return
        if trie.leaf[row] == NONE:
            make_room(trie)
            left = max(stop - search.counters[1], SHORT_LOOK * items.shape[0])
            _put_in(trie, search, items, row, _find(trie, search, items, row, NONE, left))


@compiled
def move_rows(trie: Trie, search: Search, items: Int32s, most: int) -> int:
    """Remove and reinsert every row. Returns the weight gained.

    Stops after `most` steps. All rows are in the trie at the end, unless it is stopped.
    """
    gained = 0
    stop = search.counters[1] + most
    enter_all(trie)
    for row in range(items.shape[1]):
        if search.counters[1] > stop or trie.stopped[0]:
            break
        make_room(trie)
        hit, place = _take_out(trie, search, row)
        found = _find(trie, search, items, row, NONE)
        if found.hit < hit:  # its old place was not found, because very many labels share its items
            found = Found(place, hit, _overlap(trie, search, place, search.counters[0])[1])
        gained += found.hit - hit
        _put_in(trie, search, items, row, found)
    return gained


@compiled
def break_groups(trie: Trie, search: Search, items: Int32s, most: int) -> int:
    """Break up each small group whose rows hit more separately. Returns the weight gained.

    If one row leaves, it loses its hit and the first row of its group stays behind alone. What
    both could gain elsewhere only shows if both are moved.
    """
    gained = 0
    stop = search.counters[1] + most
    enter_all(trie)
    begin, rows = _rows_by_parent(trie)
    for node in range(1, len(begin) - 1):
        if search.counters[1] > stop or trie.stopped[0]:
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
            make_room(trie)
            _take_out(trie, search, row)
        for row in group:
            make_room(trie)
            found = _find(trie, search, items, row, NONE)
            _put_in(trie, search, items, row, found)
            gain += found.hit
        # Two rows may have matched the same third row, but only the first could join it.
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
    """Whether these rows are still the only ones below a node."""
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
def _find(
    trie: Trie, search: Search, items: Int32s, row: int, without: int, most: int = NO_LIMIT
) -> Found:
    """Where a row hits most, except below `without`, as found within `most` steps."""
    search.counters[0] += 1
    number = search.counters[0]
    if without != NONE:
        search.seen[without] = number
    for slot in range(items.shape[0]):
        search.in_row[items[slot, row]] = number
    best, best_hit, best_whole = ROOT, 0, True
    search.todo[0], search.hits[0] = ROOT, 0
    left = 1
    stop = search.counters[1] + most
    while left > 0 and search.counters[1] < stop:
        left -= 1
        node, hit = search.todo[left], search.hits[left]
        for slot in range(items.shape[0]):
            item = items[slot, row]
            if not trie.shared[item]:
                continue
            if search.counters[1] >= stop:
                break
            entry = trie.bucket[bucket_of(trie, node, item)]
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
    """(weight of the part of a node's label that the row shares, whether it shares all of it)."""
    begin, end = trie.begin[node], trie.end[node]
    search.counters[1] += (end - begin) // ITEMS_PER_STEP
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
        below, node = node, cut(trie, node, middle)
        enter(trie, node)
        enter(trie, below)
    above = node
    while above != ROOT:
        for k in range(trie.begin[above], trie.end[above]):
            search.in_row[trie.label[above, k]] = 0
        above = trie.parent[above]
    leaf = add_leaf(trie, node, row)
    k = trie.begin[leaf]
    for slot in range(items.shape[0]):
        if search.in_row[items[slot, row]] == number:
            trie.label[leaf, k] = items[slot, row]
            k += 1
    enter(trie, leaf)


@compiled
def _take_out(trie: Trie, search: Search, row: int) -> tuple[int, int]:
    """Remove a row. Returns the worth of its hit and the node that is now in its place.

    A node left with one child is merged with it.
    """
    leaf = trie.leaf[row]
    node = trie.parent[leaf]
    hit = _hit(trie, search, node)
    trie.children[node] -= 1
    trie.only[node] ^= leaf
    release(trie, leaf)
    trie.leaf[row] = NONE
    if node != ROOT and trie.children[node] == 1:
        child, parent = trie.only[node], trie.parent[node]
        for k in range(trie.begin[node], trie.end[node]):
            trie.label[child, k] = trie.label[node, k]
        trie.begin[child] = trie.begin[node]
        trie.parent[child] = parent
        trie.only[parent] ^= node ^ child
        release(trie, node)
        enter(trie, child)
        node = child
    return hit, node
