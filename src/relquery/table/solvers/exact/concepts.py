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


def unpack(sets: Bits, classes: int) -> Bools:
    """(sets, classes), whether each set has each class."""
    raw = np.ascontiguousarray(sets).view(np.uint8)
    return np.unpackbits(raw, axis=1, count=classes, bitorder="little").astype(np.bool_)
