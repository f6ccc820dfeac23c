"""Rows grouped by equal values, used to count violations of functional dependencies.

A partition leaves out groups of one row, which break no dependency (stripped partitions: Huhtala
et al., TANE, 1999). It is refined by one more column in one pass over its remaining rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.table.compiled import compiled


class Partition(NamedTuple):
    """Group g holds `rows[starts[g]:starts[g + 1]]`, two rows or more."""

    rows: Int32s
    starts: Int64s

    @property
    def repeats(self) -> int:
        """The number of rows that repeat the value of an earlier row in their group."""
        return len(self.rows) - (len(self.starts) - 1)


def whole(rows: int) -> Partition:
    """All rows in one group; none if there are fewer than two."""
    if rows < 2:
        return Partition(np.empty(0, np.int32), np.zeros(1, np.int64))
    return Partition(np.arange(rows, dtype=np.int32), np.array([0, rows], dtype=np.int64))


def refine(coarse: Partition, codes: Int32s, counts: Int64s) -> Partition:
    """Split the groups by a column with codes by row id. O(rows in the groups).

    counts: scratch, one per code, 0 between calls.
    """
    return Partition(*_refine(coarse, codes, counts))


@compiled
def _refine(coarse: Partition, codes: Int32s, counts: Int64s) -> tuple[Int32s, Int64s]:
    rows = np.empty_like(coarse.rows)
    starts = np.zeros(len(rows) // 2 + 1, np.int64)
    groups, filled = 0, 0
    for g in range(len(coarse.starts) - 1):
        members = coarse.rows[coarse.starts[g] : coarse.starts[g + 1]]
        for row in members:
            counts[codes[row]] += 1
        for row in members:
            code = codes[row]
            if counts[code] > 1:  # first of its group: reserve places, stored as -place - 1
                filled, counts[code] = filled + counts[code], -filled - 1
                groups += 1
                starts[groups] = filled
            if counts[code] < 0:
                rows[-counts[code] - 1] = row
                counts[code] -= 1
        for row in members:
            counts[codes[row]] = 0
    return rows[:filled].copy(), starts[: groups + 1].copy()


@compiled
def violations(partition: Partition, codes: Int32s, counts: Int64s, limit: int) -> int:
    """Rows to remove so that each group has one code; `limit + 1` once they exceed the limit."""
    rows, starts = partition
    lost = 0
    for g in range(len(starts) - 1):
        most, stop = 0, starts[g + 1]
        for i in range(starts[g], stop):
            code = codes[rows[i]]
            counts[code] += 1
            most = max(most, counts[code])
            if lost + (i + 1 - starts[g]) - most > limit:
                stop = i + 1
                break
        lost += stop - starts[g] - most
        for i in range(starts[g], stop):
            counts[codes[rows[i]]] = 0
        if lost > limit:
            return limit + 1
    return lost


@compiled
def violations_of_each(
    partition: Partition, asked: Bools, codes: Int32s, counts: Int64s, limit: int, distinct: Int64s
) -> Int64s:
    """(m,): `violations` of the columns asked for, `limit + 1` for the others.

    codes: (m, n), by column and row id. distinct: (m,), numbers of their values. If a column has
    more values than there are groups, at least the difference is lost, because a group keeps one
    value. If that exceeds the limit, no rows are examined.
    """
    columns, rows = codes.shape
    groups = rows - len(partition.rows) + len(partition.starts) - 1
    lost = np.full(columns, limit + 1)
    for column in range(columns):
        if asked[column] and distinct[column] - groups <= limit:
            lost[column] = violations(partition, codes[column], counts, limit)
    return lost


@compiled
def shuffle_within(partition: Partition, draws: Int64s, rows: int) -> Int32s:
    """(rows,): row ids, those of each group shuffled among themselves (Fisher and Yates).

    draws: (rows,), random numbers from 0 below 2**31.
    """
    source = np.arange(rows).astype(np.int32)
    for g in range(len(partition.starts) - 1):
        start = partition.starts[g]
        for i in range(partition.starts[g + 1] - 1, start, -1):
            here = partition.rows[i]
            other = partition.rows[start + draws[i] % (i + 1 - start)]
            source[here], source[other] = source[other], source[here]
    return source
