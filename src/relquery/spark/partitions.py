"""In which order of their columns the rows of a large table are divided, judged by a sample.

Rows that share a long prefix once they are ordered should be ordered together. So Spark divides
them by ranges of all columns, those first that save the most: rows that share the items of the
first columns meet, and where many rows do, the columns after them divide these. How often rows
share items is known from a sample by how often two of its rows do, as birthdays are: a thousand
rows show well that one in ten thousand pairs share an item.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relquery.arrays import Int64s

SAMPLE = 3_000
"""Rows to draw, however many there are."""


def column_order(items: Int64s, lengths: Sequence[float], total: int) -> list[int]:
    """Columns by what they save: a greedy order (paper 000, 4.2). Those that save nothing are last.

    items: (rows, columns), a hash of each item of rows drawn at random. lengths: what an item of
    each column weighs. total: rows of the table.
    """
    rows, width = items.shape
    codes = np.zeros(rows, np.int64)
    order: list[int] = []
    while len(order) < width:
        left = [column for column in range(width) if column not in order]
        finer = {column: _coded(codes, items[:, column]) for column in left}
        gains = {
            column: lengths[column] * _shared(finer[column], total / max(1, rows))
            for column in left
        }
        best = max(left, key=lambda column: gains[column])
        order.append(best)
        codes = finer[best]
    return order


def _coded(codes: Int64s, items: Int64s) -> Int64s:
    """(rows,), equal where both are equal."""
    own = np.unique(items, return_inverse=True)[1].reshape(-1)
    both: Int64s = np.unique(codes * (len(items) + 1) + own, return_inverse=True)[1].reshape(-1)
    return both


def _shared(codes: Int64s, scale: float) -> float:
    """The chance that a row of the table shares its items with the one before it in a good order.

    scale: for how many rows of the table one of the sample stands.
    """
    counts = np.bincount(codes).astype(np.float64)
    pairs = float((counts**2).sum()) - len(codes)
    partners = scale * pairs / max(1, len(codes))
    return partners / (1.0 + partners)
