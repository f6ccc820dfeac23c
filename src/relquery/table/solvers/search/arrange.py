"""Turns a trie of item sets into an order of rows, and of items in each label.

The trie settles which whole items are shared. The starts of texts can still be gained. Rows of a
node share the label, and often the first digits or letters, of the next item if it is from the same
column. So the children of a node, including single rows, start with the column whose texts have
the most in common, and are in alphabetical order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.table.compiled import compiled, go_on
from relquery.table.items import Items
from relquery.table.prefixes import common_prefix, least_table
from relquery.table.solvers.search.trie import NONE, ROOT, Trie

MOST_CHOOSING = 4096  # with more siblings than this, they don't choose which item comes first
PASSES = 4


class Texts(NamedTuple):
    """rank, shared: see relquery.table.items. least: of `shared`, see relquery.table.prefixes.

    column: (items,), a number per column or bag. columns: how many.
    """

    rank: Int32s
    shared: Int64s
    least: Int64s
    column: Int32s
    columns: int


def texts_of(items: Items) -> Texts:
    """What `arrange` needs to know about the texts."""
    column = np.zeros(len(items.rank), np.int32)
    for slot, bag in zip(items.slots, items.bags, strict=True):
        column[slot] = bag
    return Texts(items.rank, items.shared, least_table(items.shared), column, len(items.bags))


def arrange(trie: Trie, texts: Texts, items: Int32s) -> tuple[Int64s, Int32s]:
    """(rows, columns by row id). Reorders the labels of the trie. items: (m, n)."""
    go_on(trie.stopped)
    first, next_sibling = _children(trie)
    row_of = np.full(len(trie.parent), NONE, np.int64)
    row_of[trie.leaf] = np.arange(len(trie.leaf))
    rows = order_nodes(trie, texts, first, next_sibling, row_of)
    fields = _read_out(trie, items, len(texts.rank))
    go_on(trie.stopped)
    return rows, fields


@compiled
def _children(trie: Trie) -> tuple[Int64s, Int64s]:
    """(first child, next sibling) of every node; NONE if there is none."""
    first = np.full(len(trie.parent), NONE, np.int64)
    following = first.copy()
    for node in range(len(trie.parent) - 1, 0, -1):
        parent = trie.parent[node]
        if parent != NONE:
            following[node], first[parent] = first[parent], node
    return first, following


@compiled
def order_nodes(
    trie: Trie, texts: Texts, first: Int64s, next_sibling: Int64s, row_of: Int64s
) -> Int64s:
    rows = np.empty(len(trie.leaf), np.int64)
    filled = 0
    todo = [ROOT]
    while todo and not trie.stopped[0]:
        node = todo.pop()
        if row_of[node] != NONE:
            rows[filled] = row_of[node]
            filled += 1
            continue
        count = 0
        child = first[node]
        while child != NONE:
            count += 1
            child = next_sibling[child]
        siblings = np.empty(count, np.int64)
        child = first[node]
        for k in range(count):
            siblings[k] = child
            child = next_sibling[child]
        _begin_alike(trie, texts, siblings)
        _choose_first(trie, texts, siblings)
        for child in _alphabetical(trie, texts, siblings)[::-1]:
            todo.append(child)
    return rows


@compiled
def _begin_alike(trie: Trie, texts: Texts, siblings: Int64s) -> None:
    """Move an item of the same column to the front of as many labels as is worthwhile."""
    settled = np.zeros(len(siblings), np.bool_)
    while not trie.stopped[0]:
        column = _best_column(trie, texts, siblings, settled)
        if column == NONE:
            return
        for k in range(len(siblings)):
            if not settled[k]:
                settled[k] = _bring_forward(trie, texts, siblings[k], column)


@compiled
def _bring_forward(trie: Trie, texts: Texts, node: int, column: int) -> bool:
    begin = trie.begin[node]
    for k in range(begin, trie.end[node]):
        item = trie.label[node, k]
        if texts.column[item] == column:
            trie.label[node, k] = trie.label[node, begin]
            trie.label[node, begin] = item
            return True
    return False


@compiled
def _best_column(trie: Trie, texts: Texts, siblings: Int64s, settled: Bools) -> int:
    """The column whose texts have the most in common; NONE if no two siblings can share any."""
    size = 0
    for k in range(len(siblings)):
        if not settled[k]:
            size += trie.end[siblings[k]] - trie.begin[siblings[k]]
    if size == 0:
        return NONE
    # (column, rank) of all items on offer, one item per column and sibling
    keys = np.empty(size, np.int64)
    filled = 0
    ranks = len(texts.rank)
    for k in range(len(siblings)):
        if not settled[k]:
            node = siblings[k]
            for item in trie.label[node, trie.begin[node] : trie.end[node]]:
                keys[filled] = texts.column[item] * ranks + texts.rank[item]
                filled += 1
    keys.sort()
    best, most, gain = NONE, 0, 0
    for i in range(1, size):
        if keys[i] // ranks != keys[i - 1] // ranks:
            gain = 0
        else:
            a, b = keys[i - 1] % ranks, keys[i] % ranks
            gain += common_prefix(texts.shared, texts.least, a, b) if a < b else 0
            if gain > most:
                best, most = keys[i] // ranks, gain
    return best


@compiled
def _choose_first(trie: Trie, texts: Texts, siblings: Int64s) -> None:
    """Start each label with the item whose prefix best matches another sibling's first item."""
    if not 1 < len(siblings) <= MOST_CHOOSING:
        return
    first = np.empty(len(siblings), np.int64)  # ranks, ascending
    count = 0
    for node in siblings:
        if trie.begin[node] < trie.end[node]:
            first[count] = texts.rank[trie.label[node, trie.begin[node]]]
            count += 1
    first = np.sort(first[:count])
    for _ in range(PASSES):
        changed = False
        for node in siblings:
            begin, end = trie.begin[node], trie.end[node]
            if end - begin < 2 or trie.stopped[0]:
                continue
            _remove(first, texts.rank[trie.label[node, begin]])
            best, most = begin, -1
            for k in range(begin, end):
                alike = _begins_like(texts, first[:-1], texts.rank[trie.label[node, k]])
                if alike > most:
                    best, most = k, alike
            changed = changed or best != begin
            item = trie.label[node, best]
            trie.label[node, best] = trie.label[node, begin]
            trie.label[node, begin] = item
            _insert(first, texts.rank[item])
        if not changed:
            return


@compiled
def _begins_like(texts: Texts, first: Int64s, rank: int) -> int:
    """The length of the longest prefix that a text shares with any of the others."""
    at = np.searchsorted(first, rank)
    most = 0
    if at > 0:
        most = common_prefix(texts.shared, texts.least, first[at - 1], rank)
    if at < len(first):
        if first[at] == rank:
            return 2**40
        most = max(most, common_prefix(texts.shared, texts.least, rank, first[at]))
    return most


@compiled
def _remove(ascending: Int64s, value: int) -> None:
    """Remove a value and close the gap; the last place is then free."""
    for k in range(np.searchsorted(ascending, value), len(ascending) - 1):
        ascending[k] = ascending[k + 1]


@compiled
def _insert(ascending: Int64s, value: int) -> None:
    """Put a value into its place; the last place is free."""
    k = len(ascending) - 1
    while k > 0 and ascending[k - 1] > value:
        ascending[k] = ascending[k - 1]
        k -= 1
    ascending[k] = value


@compiled
def _alphabetical(trie: Trie, texts: Texts, siblings: Int64s) -> Int64s:
    """Rows with nothing left first."""
    keys = np.empty(len(siblings), np.int64)
    for k in range(len(siblings)):
        node = siblings[k]
        keys[k] = -1
        if trie.begin[node] < trie.end[node]:
            keys[k] = texts.rank[trie.label[node, trie.begin[node]]]
    return siblings[np.argsort(keys, kind="mergesort")]


@compiled
def _read_out(trie: Trie, items: Int32s, values: int) -> Int32s:
    """(n, m), the columns of each row's items in the order of its path."""
    slots, rows = items.shape
    fields = np.empty((rows, slots), np.int32)
    column_of = np.empty(values, np.int32)
    for row in range(rows):
        if trie.stopped[0]:
            break
        for slot in range(slots):
            column_of[items[slot, row]] = slot
        node = trie.leaf[row]
        while node != ROOT:
            for k in range(trie.begin[node], trie.end[node]):
                fields[row, k] = column_of[trie.label[node, k]]
            node = trie.parent[node]
    return fields
