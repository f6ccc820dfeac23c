"""Rows grouped by equal values, used to count violations of functional dependencies.

A partition leaves out groups of one row, which break no dependency (stripped partitions: Huhtala
et al., TANE, 1999). It is refined by one more column in one pass over its remaining rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery import _native
from relquery.arrays import Int32s, Int64s


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
    return Partition(*_native.refine(*coarse, codes, counts))
