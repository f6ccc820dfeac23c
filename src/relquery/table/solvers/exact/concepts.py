"""Finds every set of items that some rows have in common.

Items in only one row never hit, and items of weight 0 are worth nothing: neither is in a set. Items
that occur in the same rows always go together, so they form one class with their total weight.
Functional dependencies amount to this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from relquery.arrays import Bools, Floats, Int32s, Int64s
from relquery.table.compiled import compiled

Bits = npt.NDArray[np.uint64]
WEIGHT_BITS = 46  # for the heaviest row: the sum over all nodes still fits in 63 bits


class Classes(NamedTuple):
    """Classes of items that occur in the same rows.

    of: (items,), the class of each item, -1 for items left out. weight: (classes,), total weight.
    rows: (n, words), the classes that each row has, as bits.
    """

    of: Int64s
    weight: Int64s
    rows: Bits


def whole_numbers(items: Int32s, weights: Int64s | Floats) -> Int64s:
    """Weights as whole numbers, so that sums and bounds are exact. items: (m, n).

    Fractions, and weights of more than WEIGHT_BITS, are scaled by a power of two and rounded. The
    error is 2^-46 of the heaviest row, no more than in sums of floats.
    """
    heaviest = float(weights[items].sum(axis=0, dtype=np.float64).max(initial=0.0))
    if heaviest < 2**WEIGHT_BITS and np.array_equal(weights, np.floor(weights)):
        return weights.astype(np.int64)
    _, bits = np.frexp(heaviest)
    scaled = np.ldexp(weights.astype(np.float64), WEIGHT_BITS - bits)
    whole: Int64s = np.rint(scaled).astype(np.int64)
    return whole


def find_classes(items: Int32s, weights: Int64s) -> Classes:
    """Classes of the items (m, n) that occur in several rows and have a weight above 0."""
    having: dict[int, int] = {}
    for slot in items.tolist():
        for row, item in enumerate(slot):
            having[item] = having.get(item, 0) | 1 << row
    of = np.full(len(weights), -1, np.int64)
    number: dict[int, int] = {}
    for item, rows in having.items():
        if weights[item] > 0 and rows.bit_count() > 1:
            of[item] = number.setdefault(rows, len(number))
    weight = np.zeros(len(number), np.int64)
    np.add.at(weight, of[of >= 0], weights[of >= 0])
    bits = np.zeros((items.shape[1], len(number) // 64 + 1), np.uint64)
    _set_bits(bits, of[items])
    return Classes(of, weight, bits)


@compiled
def _set_bits(bits: Bits, classes: Int64s) -> None:
    for slot in range(len(classes)):
        for row in range(len(bits)):
            k = classes[slot, row]
            if k >= 0:
                bits[row, k >> 6] |= np.uint64(1) << np.uint64(k & 63)


def unpack(sets: Bits, classes: int) -> Bools:
    """(sets, classes), whether each set has each class."""
    raw = np.ascontiguousarray(sets).view(np.uint8)
    return np.unpackbits(raw, axis=1, count=classes, bitorder="little").astype(np.bool_)


@compiled
def intersect(rows: Bits, most: int) -> Bits:
    """All intersections of the rows' sets, including the sets; not all if more than `most`."""
    size = 16
    while size < 4 * (most + 2):
        size *= 2
    table = np.full(size, -1, np.int64)
    sets = np.empty((most + 2, rows.shape[1]), np.uint64)
    count = 0
    for row in rows:
        before = _add(sets, count, table, row)
        known, count = count, before
        if before > known:
            for k in range(known):
                if count > most:
                    return sets[:count].copy()
                count = _add(sets, count, table, sets[k] & row)
    return sets[:count].copy()


@compiled
def _add(sets: Bits, count: int, table: Int64s, new: Bits) -> int:
    """Add a set unless it exists. Returns the number of sets."""
    mixed = np.uint64(0)
    for word in new:
        mixed = (mixed ^ word) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    slot = np.int64(mixed & np.uint64(len(table) - 1))
    while table[slot] >= 0:
        if np.array_equal(sets[table[slot]], new):
            return count
        slot = (slot + 1) & (len(table) - 1)
    table[slot] = count
    sets[count] = new
    return count + 1
