"""Computes the common prefix of two texts from the common prefixes of alphabetical neighbours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Int32s, Int64s

BLOCK = 16


class Beginnings(NamedTuple):
    """The prefixes that the texts of items share.

    rank: (items,), unique place of the text in the order of all texts. shared: (items,), by rank,
        length of the prefix shared with the text before. least: table of minima of `shared`; see
        `least_table`.
    """

    rank: Int32s
    shared: Int64s
    least: Int64s


def least_table(shared: Int64s) -> Int64s:
    """(levels, blocks), the minimum over 2^level blocks of BLOCK values, starting at each block."""
    blocks = -(-len(shared) // BLOCK)
    padded = np.full(max(blocks, 1) * BLOCK, np.iinfo(np.int64).max)
    padded[: len(shared)] = shared
    levels = [padded.reshape(-1, BLOCK).min(axis=1)]
    while 2 ** len(levels) <= len(levels[0]):
        half = 2 ** (len(levels) - 1)
        last = levels[-1].copy()
        last[:-half] = np.minimum(last[:-half], last[half:])
        levels.append(last)
    return np.array(levels)
