"""What rows share, as a lattice: every set of items that some rows have in common.

Items that stand in one row never hit and items of weight 0 are worth nothing: both are left out.
Items of the same rows travel together, so they are one item of their summed weight; that is what a
functional dependency comes to. Rows whose sets are then equal are one concept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from relquery.errors import ConfigError
from relquery.table.columns import Bools, Int32s, Int64s

Float64s = npt.NDArray[np.float64]

MOST_CONCEPTS = 2048
WEIGHT_BITS = 46  # of the heaviest row: summed over all concepts it still fits 63 bits


class Lattice(NamedTuple):
    """Sets of items ("concepts"), the lightest first; concept 0 is what all rows have in common.

    weight: (concepts,), of the set. above: (concepts, concepts), `above[i, j]`: set i is a proper
    part of set j, which makes i < j. row: (n,), the concept that is all that the row shares.
    """

    weight: Int64s
    above: Bools
    row: Int64s


def build_lattice(items: Int32s, weights: Int64s | Float64s) -> Lattice:
    """The lattice of a table of at least one row; items (m, n) and weights as in Problem.

    Raises ConfigError if it has more than MOST_CONCEPTS concepts.
    """
    merged = _merge_items(items, _whole_numbers(items, weights))
    rows = [
        sum(1 << bit for bit, having in enumerate(merged) if having >> row & 1)
        for row in range(items.shape[1])
    ]
    concepts = sorted(_intersections(rows))
    has = _unpack(concepts, len(merged))
    weight = has @ np.array(list(merged.values()), np.int64)
    order = np.argsort(weight, kind="stable")
    has, weight = has[order], weight[order]
    lacks = (1 - has).astype(np.float32)  # counts below 2^24 are exact, and the product is fast
    above = has.astype(np.float32) @ lacks.T == 0
    np.fill_diagonal(above, False)
    place = {concepts[old]: new for new, old in enumerate(order.tolist())}
    return Lattice(weight, above, np.array([place[row] for row in rows], np.int64))


def _whole_numbers(items: Int32s, weights: Int64s | Float64s) -> list[int]:
    """Weights as whole numbers, so that sums and bounds are exact.

    Fractions, and weights of more than WEIGHT_BITS, are scaled by a power of two and rounded: off
    by 2^-46 of the heaviest row, no more than what sums of floats lose.
    """
    heaviest = float(weights[items].sum(axis=0, dtype=np.float64).max(initial=0.0))
    if heaviest < 2**WEIGHT_BITS and np.array_equal(weights, np.floor(weights)):
        return [int(weight) for weight in weights]
    _, bits = np.frexp(heaviest)
    scaled = np.ldexp(weights.astype(np.float64), WEIGHT_BITS - bits)
    return [int(weight) for weight in np.rint(scaled)]


def _merge_items(items: Int32s, weights: list[int]) -> dict[int, int]:
    """Summed weight of the items by the rows that have them (as bits), where those are several."""
    having: dict[int, int] = {}
    for slot in items.tolist():
        for row, item in enumerate(slot):
            having[item] = having.get(item, 0) | 1 << row
    merged: dict[int, int] = {}
    for item, rows in having.items():
        if weights[item] > 0 and rows.bit_count() > 1:
            merged[rows] = merged.get(rows, 0) + weights[item]
    return merged


def _intersections(rows: list[int]) -> set[int]:
    """All intersections of the rows' sets (as bits)."""
    concepts: set[int] = set()
    for row in dict.fromkeys(rows):
        concepts |= {row & concept for concept in concepts} | {row}
        if len(concepts) > MOST_CONCEPTS:
            raise ConfigError(
                "This table is too entangled for an exact search: its rows share more than "
                f"{MOST_CONCEPTS} different sets of values. Use method 'tree', or fewer rows or "
                "columns."
            )
    return concepts


def _unpack(sets: list[int], size: int) -> Int64s:
    """(sets, size), 1 where the set has the bit."""
    width = size // 8 + 1
    packed = b"".join(bits.to_bytes(width, "little") for bits in sets)
    table = np.frombuffer(packed, np.uint8).reshape(len(sets), width)
    return np.unpackbits(table, axis=1, count=size, bitorder="little").astype(np.int64)
