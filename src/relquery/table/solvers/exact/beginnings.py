"""What rows share beyond whole items: the beginning of one more item.

Rows that share a set may continue with different items that share a beginning. Their prompts then
share this beginning too. Such a node is the set plus a beginning, as long as two of the items
allow.

Suppose all rows that could be below a node share more than its set. If this extra part is sent
first, it lengthens the prefix of every row below, so the node is useless. The exception is a node
below a shorter beginning of the same item, which these rows share with others. Leaving that
beginning costs it once, and gains the extra part for each child of the node but one. So the node is
useful only if the extra part weighs less than the shorter beginning. And if a shared item has the
same beginning itself, that whole item is the better node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.table.compiled import compiled
from relquery.table.prefixes import Beginnings, common_prefix
from relquery.table.solvers.exact.concepts import Bits, Classes


class Started(NamedTuple):
    """Sets with beginnings: the set, the weight of the beginning, and the lowest and highest rank
    of the items with this beginning."""

    of: Int64s
    begin: Int64s
    low: Int64s
    high: Int64s


def find_beginnings(
    items: Int32s, weights: Int64s, texts: Beginnings, classes: Classes, sets: Bits, most: int
) -> Started:
    """All sets with beginnings that can be useful; not all if there are more than `most`."""
    return Started(*_find(items, weights, *texts, *classes, sets, most))


@compiled
def _find(
    items: Int32s,
    weights: Int64s,
    rank: Int32s,
    shared: Int64s,
    least: Int64s,
    class_of: Int64s,
    class_weight: Int64s,
    rows: Bits,
    sets: Bits,
    most: int,
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    of, begin, low, high = np.empty((4, most + 1), np.int64)
    keys = np.empty(items.size, np.int64)
    alike = np.empty((items.size + 1, 3), np.int64)
    around = np.empty((items.size + 1, 3), np.int64)
    class_at = np.empty_like(class_of)
    class_at[rank] = class_of
    count, n = 0, len(rows)
    for k in range(len(sets)):
        filled = _list_left(items, weights, rank, class_of, rows, sets[k], keys)
        found, depth = _find_alike(keys[:filled], n, shared, least, alike), 0
        for run in alike[:found][::-1]:  # a run comes after the runs that contain it
            while depth > 0 and run[0] < around[depth - 1, 0]:
                depth -= 1
            before = around[depth - 1, 2] if depth > 0 else 0
            members = keys[run[0] : run[1]]
            if count <= most and _is_of_use(members, class_at, class_weight, rows, sets[k], before):
                around[depth] = run
                depth += 1
                of[count], begin[count] = k, run[2]
                low[count], high[count] = members[0] // n, members[-1] // n
                count += 1
    return of[:count].copy(), begin[:count].copy(), low[:count].copy(), high[:count].copy()


@compiled
def _list_left(
    items: Int32s,
    weights: Int64s,
    rank: Int32s,
    class_of: Int64s,
    rows: Bits,
    chosen: Bits,
    keys: Int64s,
) -> int:
    """List rank x rows + row, ascending, for the other items of rows that have the set."""
    filled, n = 0, len(rows)
    for row in range(n):
        if not _has_all(rows[row], chosen):
            continue
        for slot in range(len(items)):
            item = items[slot, row]
            if weights[item] > 0 and not _has(chosen, class_of[item]):
                keys[filled] = rank[item] * n + row
                filled += 1
    keys[:filled].sort()
    return filled


@compiled
def _has_all(row: Bits, chosen: Bits) -> bool:
    for word in range(len(row)):  # noqa: SIM110 - compiled as a loop
        if chosen[word] & ~row[word]:
            return False
    return True


@compiled
def _has(chosen: Bits, k: int) -> bool:
    return k >= 0 and (chosen[k >> 6] >> np.uint64(k & 63)) & np.uint64(1) != 0


@compiled
def _find_alike(keys: Int64s, n: int, shared: Int64s, least: Int64s, alike: Int64s) -> int:
    """List runs of entries whose texts share a beginning, as long as for any two: (start, stop,
    length). Returns their number."""
    found, depth, leaf = 0, 0, 0
    open_at, lengths = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    for i in range(1, len(keys) + 1):
        if i < len(keys) and keys[i] // n == keys[i - 1] // n:
            continue
        length = 0
        if i < len(keys):
            length = common_prefix(shared, least, keys[i - 1] // n, keys[i] // n)
        start = leaf
        while depth > 0 and lengths[depth - 1] > length:
            depth -= 1
            start = open_at[depth]
            alike[found, 0], alike[found, 1], alike[found, 2] = start, i, lengths[depth]
            found += 1
        if length > 0 and (depth == 0 or lengths[depth - 1] < length):
            open_at[depth], lengths[depth] = start, length
            depth += 1
        leaf = i
    return found


@compiled
def _is_of_use(
    members: Int64s,
    class_at: Int64s,
    class_weight: Int64s,
    rows: Bits,
    chosen: Bits,
    before: int,
) -> bool:
    """Whether a node with these entries (rank x rows + row) can be part of the best tree.

    class_at: by rank. chosen: the set of the node. before: length of the shorter beginning, or 0.
    """
    n = len(rows)
    several = False
    both = rows[members[0] % n].copy()
    for member in members[1:]:
        several = several or member % n != members[0] % n
        both &= rows[member % n]
    if not several:
        return False
    more = 0
    for k in range(len(class_weight)):
        if _has(both, k) and not _has(chosen, k):
            more += class_weight[k]
    if more == 0:
        return True
    if more >= before:
        return False
    for member in members:  # noqa: SIM110 - compiled as a loop
        if _has(both, class_at[member // n]):
            return False
    return True
