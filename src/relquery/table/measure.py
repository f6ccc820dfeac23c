"""How much a schedule shares: prefix hit count (PHC) and prefix hit rate (PHR)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from relquery.table.columns import Columns, Int32s, Int64s
from relquery.table.compiled import compiled

Fields = npt.NDArray[np.int16] | npt.NDArray[np.int32]


def phc(columns: Columns, rows: Int64s, fields: Fields) -> int:
    """Prefix hit count (paper 000, eq. 1 and 2).

    Per row, the squared lengths of its leading cells that equal, field and value, the cell at the
    same position of the row sent before; the first cell that differs ends the count.
    """
    if columns.codes.size == 0:
        return 0
    return _phc(columns.codes.T, columns.offsets, columns.lengths**2, rows, fields)


def phr(columns: Columns, rows: Int64s, fields: Fields) -> float:
    """Prefix hit rate: characters shared over characters sent, from 0 to 1.

    A cell is written "column: value". A row's hit is the longest run of its leading cells with
    which some row sent earlier (not just the one before) begins too: what a cache without a size
    limit serves. Only whole cells count, so it is a lower bound of the rate in tokens.
    """
    if columns.codes.size == 0:
        return 0.0
    hit, total = _shared(columns.codes.T, columns.offsets, columns.cell_lengths, rows, fields)
    return hit / total


@compiled
def _phc(codes: Int32s, offsets: Int64s, weights: Int64s, rows: Int64s, fields: Fields) -> int:
    total = 0
    for i in range(1, len(rows)):
        for position in range(fields.shape[1]):
            field = fields[i, position]
            code = codes[field, rows[i]]
            if field != fields[i - 1, position] or code != codes[field, rows[i - 1]]:
                break
            total += weights[offsets[field] + code]
    return total


@compiled
def _shared(
    codes: Int32s, offsets: Int64s, lengths: Int64s, rows: Int64s, fields: Fields
) -> tuple[int, int]:
    """(characters shared, characters sent), from a trie of cells in one open-addressing table."""
    size = 16
    while size < codes.size + codes.size // 2:
        size *= 2
    parent = np.full(size, -1, np.int32)  # slot: the edge (parent, cell) leads to child
    edge = np.empty(size, np.int32)
    child = np.empty(size, np.int32)
    nodes, hit, total = 0, 0, 0
    for i in range(len(rows)):
        node, hitting = 0, True
        for position in range(fields.shape[1]):
            field = fields[i, position]
            cell = offsets[field] + codes[field, rows[i]]
            slot = _slot(node, cell, size)
            while parent[slot] >= 0 and (parent[slot] != node or edge[slot] != cell):
                slot = (slot + 1) & (size - 1)
            if parent[slot] < 0:
                hitting = False
                nodes += 1
                parent[slot], edge[slot], child[slot] = node, cell, nodes
            total += lengths[cell]
            hit += lengths[cell] if hitting else 0
            node = child[slot]
    return hit, total


@compiled
def _slot(node: int, cell: int, size: int) -> int:
    mixed = (node * 0x9E3779B1 + cell) * 0x85EBCA77
    return (mixed ^ (mixed >> 17)) & (size - 1)
