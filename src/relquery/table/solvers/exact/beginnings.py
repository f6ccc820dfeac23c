"""What rows share beyond whole items: the beginning of one item more.

Rows that have a set in common may go on with items that only begin alike, each with its own: their
prompts share the beginning, too. Such a node is the set with a beginning that is as long as two of
the items allow. It is of use only if all rows that could stand below it have no more in common than
the set: what more they had in common would come before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.table.compiled import compiled
from relquery.table.prefixes import Beginnings, common_prefix
from relquery.table.solvers.exact.concepts import Bits, Classes


class Started(NamedTuple):
    """Sets with beginnings: which set, weight of the beginning, and the lowest and the highest of
    the items that begin so, by rank."""

    of: Int64s
    begin: Int64s
    low: Int64s
    high: Int64s


def find_beginnings(
    items: Int32s, weights: Int64s, texts: Beginnings, classes: Classes, sets: Bits, most: int
) -> Started:
    """All sets with beginnings that can be of use; more than `most`: not all of them."""
    return Started(*_find(items, weights, *texts, classes.of, classes.rows, sets, most))


@compiled
def _find(
    items: Int32s,
    weights: Int64s,
    rank: Int32s,
    shared: Int64s,
    least: Int64s,
    class_of: Int64s,
    rows: Bits,
    sets: Bits,
    most: int,
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    of, begin, low, high = np.empty((4, most + 1), np.int64)
    keys = np.empty(items.size, np.int64)
    alike = np.empty((items.size + 1, 3), np.int64)
    count, n = 0, len(rows)
    for k in range(len(sets)):
        filled = _list_left(items, weights, rank, class_of, rows, sets[k], keys)
        found = _find_alike(keys[:filled], n, shared, least, alike)
        for start, stop, length in alike[:found]:
            if count <= most and _share_no_more(keys[start:stop] % n, rows, sets[k]):
                of[count], begin[count] = k, length
                low[count], high[count] = keys[start] // n, keys[stop - 1] // n
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
    """List rank x rows + row, ascending, of the other items of rows that have the set."""
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
    """List runs of entries whose texts begin alike, the longest beginnings of any two: (start,
    stop, length). Gives their number."""
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
def _share_no_more(members: Int64s, rows: Bits, chosen: Bits) -> bool:
    """Whether these are several rows that have just the chosen set in common."""
    several = False
    both = rows[members[0]].copy()
    for row in members[1:]:
        several = several or row != members[0]
        both &= rows[row]
    return several and np.array_equal(both, chosen)
