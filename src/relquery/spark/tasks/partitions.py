"""Which rows of a large table meet in one partition, planned from a sample of them.

Rows that share a long prefix once they are ordered should be ordered together. So each row follows
a path of leading items through a tree: at each node, the item of the row that saves the most among
the rows there. The leaves lie side by side, and partitions are ranges of them of about equal size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from relquery.arrays import Bools, Floats, Int64s

_LEAST, _EACH = 3_000, 4  # rows of a sample: in all, and for each partition
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of a table, drawn at random.

    items: (rows, columns), a hash of each item; equal cells of two columns have different ones.
    lengths: (rows, columns), what each item weighs. total: rows of the table.
    """

    items: Int64s
    lengths: Int64s
    total: int

    @property
    def scale(self) -> float:
        """For how many rows of the table one of the sample stands."""
        return self.total / max(1, len(self.items))


def sampled(count: int) -> int:
    """How many rows to draw for a plan of so many partitions."""
    return max(_LEAST, _EACH * count)


@dataclass(slots=True)
class _Node:
    """Where paths part, or a leaf.

    known: hashes of items, ascending, each with its gain and where it leads. rest: where rows
    without a known item go; None in a leaf. begin, rows: of a leaf, its place among all rows of the
    table, and how many it is expected to have. path: what the items that lead here weigh.
    """

    rows: float
    path: float
    known: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    gains: Floats = field(default_factory=lambda: np.empty(0))
    children: list[_Node] = field(default_factory=list)
    rest: _Node | None = None
    begin: float = 0.0


@dataclass(frozen=True, slots=True)
class Partitions:
    """A plan: rows go to partitions 0 to `count` - 1. size: rows that one should have."""

    count: int
    size: float
    _root: _Node

    @classmethod
    def plan(cls, sample: Sample, count: int) -> Partitions:
        """Plan for a table. The plan has at most as many nodes as the sample has cells.

        count: of partitions, at least 1.
        """
        size = max(1.0, sample.total / count)
        every = np.arange(len(sample.items))
        root = _grown(sample, every, np.ones(sample.items.shape[1], np.bool_), 0.0, size)
        begin = 0.0
        for leaf in _leaves(root):
            leaf.begin = begin
            begin += leaf.rows
        return cls(count, size, root)

    @property
    def nodes(self) -> int:
        """How many nodes the plan has."""
        return sum(1 for _ in _nodes(self._root))

    @property
    def shared(self) -> float:
        """What rows share with one before them in their partition by their paths alone: a lower
        bound of what ordering each partition then saves."""
        return sum(
            leaf.path * max(0.0, leaf.rows - max(1.0, leaf.rows / self.size))
            for leaf in _leaves(self._root)
        )

    def of(self, items: Int64s) -> Int64s:
        """(rows,), the partition of each row. items: (rows, columns), as in Sample."""
        found = np.empty(len(items), np.int64)
        self._place(self._root, np.arange(len(items)), items, found)
        return found

    def _place(self, node: _Node, rows: Int64s, items: Int64s, found: Int64s) -> None:
        if not len(rows):
            return
        if node.rest is None:
            found[rows] = self._of_leaf(node, items[rows])
            return
        best = _best_known(node, items[rows])
        order = np.argsort(best, kind="stable")
        bounds = np.searchsorted(best[order], np.arange(len(node.children) + 1))
        self._place(node.rest, rows[order[: bounds[0]]], items, found)
        for child, begin, end in zip(node.children, bounds[:-1], bounds[1:], strict=True):
            self._place(child, rows[order[begin:end]], items, found)

    def _of_leaf(self, leaf: _Node, items: Int64s) -> Int64s:
        """A leaf that fits is not cut; a larger one is dealt out evenly."""
        share = 0.5 if leaf.rows <= self.size else _shares(items)
        at = (leaf.begin + leaf.rows * share) // self.size
        return np.broadcast_to(np.clip(at, 0, self.count - 1), len(items)).astype(np.int64)


def _grown(sample: Sample, rows: Int64s, free: Bools, path: float, size: float) -> _Node:
    """The tree over some rows of the sample. free: columns that are not on the path."""
    node = _Node(len(rows) * sample.scale, path)
    columns = np.flatnonzero(free)
    if node.rows <= size or not len(columns):
        return node
    gains = np.column_stack([_gains(sample, rows, column) for column in columns.tolist()])
    chosen = gains.argmax(axis=1)
    gain = gains[np.arange(len(rows)), chosen]
    shares = np.flatnonzero(gain > 0)
    if not len(shares):
        return node
    items = sample.items[rows, columns[chosen]][shares]
    node.known, first, inverse = np.unique(items, return_index=True, return_inverse=True)
    node.gains = gain[shares][first]
    groups = np.split(
        rows[shares][np.argsort(inverse, kind="stable")],
        np.cumsum(np.bincount(inverse))[:-1],
    )
    for group, column in zip(groups, columns[chosen][shares][first], strict=True):
        below = free.copy()
        below[column] = False
        length = float(sample.lengths[group, column].mean())
        node.children.append(_grown(sample, group, below, path + length, size))
    node.rest = _Node((len(rows) - len(shares)) * sample.scale, path)
    return node


def _gains(sample: Sample, rows: Int64s, column: int) -> Floats:
    """(rows,), what all rows with the same item save if it leads."""
    items = sample.items[rows, column]
    _, inverse, counts = np.unique(items, return_inverse=True, return_counts=True)
    gains: Floats = (counts[inverse] - 1.0) * sample.lengths[rows, column]
    return gains


def _best_known(node: _Node, items: Int64s) -> Int64s:
    """(rows,), the child of each row's item with the highest gain; -1 for none."""
    at = np.minimum(np.searchsorted(node.known, items), len(node.known) - 1)
    gain = np.where(node.known[at] == items, node.gains[at], -1.0)
    column, every = gain.argmax(axis=1), np.arange(len(items))
    return np.where(gain[every, column] < 0, -1, at[every, column])


def _shares(items: Int64s) -> Floats:
    """(rows,), evenly spread from 0 to 1; equal rows get the same."""
    mixed = np.zeros(len(items), np.uint64)
    for column in items.T:
        mixed = (mixed ^ column.astype(np.uint64)) * _MIX
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(11)) / float(1 << 53)


def _nodes(node: _Node) -> Iterator[_Node]:
    yield node
    for child in (*node.children, *(() if node.rest is None else (node.rest,))):
        yield from _nodes(child)


def _leaves(node: _Node) -> Iterator[_Node]:
    return (found for found in _nodes(node) if found.rest is None)
