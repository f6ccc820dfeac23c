"""The lattice of everything that rows share, i.e. of all possible prefixes in a trie.

A node is a set of items that some rows have in common. Items in only one row never hit, and items
of weight 0 are worth nothing: neither is in a set. Items that occur in the same rows always go
together, so they form one class with their total weight; functional dependencies amount to this.

If beginnings of texts count, a node may also be such a set plus the beginning of one more item. A
row with unique items is then a separate node, as these items may share beginnings with others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from relquery._native import find_beginnings, find_classes, intersect
from relquery.arrays import Bools, Floats, Int32s, Int64s
from relquery.errors import ConfigError
from relquery.reordering.items import Beginnings

MOST_SETS, MOST_NODES = 2048, 12_000


class BegunSets(NamedTuple):
    """Sets with beginnings: the set, the weight of the beginning, and the lowest and highest rank
    of the items with this beginning."""

    of: Int64s
    begin: Int64s
    low: Int64s
    high: Int64s


NOTHING = BegunSets(*np.empty((4, 0), np.int64))


class Lattice(NamedTuple):
    """Nodes, lightest first; node 0 is what all rows have in common.

    weight: (nodes,), of the set and its beginning. source: (nodes,), the number of the set, or of
    the row with unique items. begin: (nodes,), weight of the beginning, 0 without one. low, high:
    (nodes,), rank range of the items with this beginning, among rows that have the set.
    above: (nodes, sources), whether the node can come before nodes of another source.
    row: (n,), the node of each row.
    """

    weight: Int64s
    source: Int64s
    begin: Int64s
    low: Int64s
    high: Int64s
    above: Bools
    row: Int64s


def build_lattice(
    items: Int32s,
    weights: Int64s | Floats,
    texts: Beginnings | None = None,
    most: int = MOST_NODES,
) -> Lattice:
    """The lattice of a table of at least one row; items (m, n) and weights as in Problem.

    texts: if beginnings count, their lengths in the unit of the weights.
    Raises ConfigError if it has more than MOST_SETS sets, or more than `most` nodes.
    """
    whole = whole_numbers(items, weights)
    classes = Classes(*find_classes(items, whole))
    sets = intersect(classes.rows, MOST_SETS)
    if len(sets) > MOST_SETS:
        raise _too_entangled(MOST_SETS, "different sets of values")
    place = {each.tobytes(): k for k, each in enumerate(sets)}
    source_of = np.array([place[row.tobytes()] for row in classes.rows], np.int64)
    has = unpack(sets, len(classes.weight))
    if texts is None:
        weight = has @ classes.weight
        return _sort(weight, has, NOTHING, _parts(has, has), source_of)
    own = np.flatnonzero(((classes.of[items] < 0) & (whole[items] > 0)).any(axis=0))
    started = BegunSets(*find_beginnings(items, whole, *texts, *classes, sets, most))
    if len(sets) + len(own) + len(started.of) > most:
        raise _too_entangled(most, "sets of values and beginnings of values")
    source_of[own] = len(sets) + np.arange(len(own))
    all_has = np.concatenate([has, unpack(classes.rows[own], len(classes.weight))])
    weight = np.concatenate([has @ classes.weight, whole[items[:, own]].sum(axis=0)])
    listed = _list_ranks(items[:, own], whole, texts, classes, has)
    above = np.concatenate(
        [
            _parts(has, all_has),
            np.zeros((len(own), len(all_has)), np.bool_),
            _parts(has, all_has)[started.of] & _go_on(listed, started),
        ]
    )
    return _sort(weight, all_has, started, above, source_of)


def _too_entangled(most: int, what: str) -> ConfigError:
    return ConfigError(
        "This table is too complex for an exact search: its rows share more than "
        f"{most} {what}. Use method 'tree', or fewer rows or columns."
    )


def _parts(some: Bools, others: Bools) -> Bools:
    """(some, others), whether one set is a subset of the other; equal sets count."""
    lacks = (~others).astype(np.float32)  # counts below 2^24 are exact, and the product is fast
    return np.asarray(some.astype(np.float32) @ lacks.T == 0)


def _list_ranks(
    own: Int32s, weights: Int64s, texts: Beginnings, classes: Classes, has: Bools
) -> Int64s:
    """(sources, ranks + 1): how many items of a source come before each rank.

    own: (m, rows), the items of rows with unique items.
    """
    counts = np.zeros((len(has) + own.shape[1], len(texts.rank) + 1), np.int32)
    shared = np.flatnonzero(classes.of >= 0)
    counts[: len(has), texts.rank[shared] + 1] = has[:, classes.of[shared]]
    for row, items in enumerate(own.T, start=len(has)):
        counts[row, texts.rank[items[weights[items] > 0]] + 1] = 1
    return np.cumsum(counts, axis=1, dtype=np.int32)


def _go_on(listed: Int64s, started: BegunSets) -> Bools:
    """(started, sources), whether a source has another item with this beginning."""
    inside = listed[:, started.high + 1] - listed[:, started.low]
    return np.asarray((inside > inside[started.of, np.arange(len(started.of))]).T)


def _sort(
    weight: Int64s, has: Bools, started: BegunSets, above: Bools, source_of: Int64s
) -> Lattice:
    """The nodes by weight: sources, then sets with beginnings.

    weight, has: of each source. source_of: (n,), the source of each row.
    """
    source = np.concatenate([np.arange(len(weight)), started.of])
    begin, low, high = np.zeros((3, len(source)), np.int64)
    begin[len(weight) :], low[len(weight) :], high[len(weight) :] = started[1:]
    # A beginning as long as a whole item comes before the set or row that contains the item.
    order = np.lexsort((begin == 0, has.sum(axis=1)[source], weight[source] + begin))
    return Lattice(
        weight=(weight[source] + begin)[order],
        source=source[order],
        begin=begin[order],
        low=low[order],
        high=high[order],
        above=np.ascontiguousarray(above[order]),
        row=np.argsort(order)[source_of],
    )


def restrict(lattice: Lattice, nodes: Int64s) -> Lattice:
    """A lattice of only these nodes, ascending; `row` is unchanged."""
    return lattice._replace(
        weight=lattice.weight[nodes],
        source=lattice.source[nodes],
        begin=lattice.begin[nodes],
        low=lattice.low[nodes],
        high=lattice.high[nodes],
        above=lattice.above[nodes],
    )


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
