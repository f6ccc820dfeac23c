"""Which rows of a large table meet in one partition, planned from a sample of them.

Rows that share a long prefix once they are ordered should be ordered together. So the rows of a
table are divided by the items of one column, those with the same item together: by the column with
which an order of the parts saves the most. An item that fills more than a partition is divided
again, by another column. How often rows share items is known from a sample by how often two of its
rows do, as birthdays are: a thousand rows show well that one in ten thousand pairs share an item.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from relquery.arrays import Floats, Int64s
from relquery.sql import names as ours

PLACE = f"{ours.PREFIX}partition"
HASHES, LENGTHS = f"{ours.PREFIX}hashes", f"{ours.PREFIX}lengths"
DRAWN = pa.schema([(HASHES, pa.list_(pa.int64())), (LENGTHS, pa.list_(pa.int64()))])
_AROUND = 6  # characters around the name and the text of a field in a prompt
_FIRST = 1 << 10  # times as much as others weigh those that every prompt begins with
_LEAST, _EACH = 3_000, 4  # rows of a sample: in all, and for each partition
_MIX = np.uint64(0x9E3779B97F4A7C15)
_NEAR = 0.99
"""Of what the best column saves: among columns that save so much, the one with the most items."""


@dataclass(frozen=True, slots=True)
class DrawnSample:
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
    """Rows that are divided by the items of a column, or a leaf.

    rows: how many of the table are expected here. saved: what one of them shares with those before
    it, as expected. column: that divides them; None in a leaf. known: items that lead to children,
    ascending. dealt: rows with other items, which are dealt out evenly by the hash of the item.
    begin: the place of these, or of the leaf, among all rows of the table.
    """

    rows: float
    saved: float
    column: int | None = None
    known: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    children: list[_Node] = field(default_factory=list)
    dealt: float = 0.0
    begin: float = 0.0


@dataclass(frozen=True, slots=True)
class Partitions:
    """A plan: rows go to partitions 0 to `count` - 1. size: rows that one should have."""

    count: int
    size: float
    _root: _Node

    @classmethod
    def plan(cls, sample: DrawnSample, count: int) -> Partitions:
        """Plan for a table. The plan has fewer nodes than the sample has rows.

        count: of partitions, at least 1.
        """
        size = max(1.0, sample.total / count)
        columns = tuple(range(sample.items.shape[1]))
        root = _grown(sample, np.arange(len(sample.items)), columns, size)
        begin = 0.0
        for node in _nodes(root):
            node.begin = begin
            begin += node.rows if node.column is None else node.dealt
        return cls(count, size, root)

    @property
    def nodes(self) -> int:
        """How many nodes the plan has."""
        return sum(1 for _ in _nodes(self._root))

    @property
    def saved(self) -> float:
        """What all rows share with those before them in their partition, as expected."""
        return sum(
            node.saved * (node.rows if node.column is None else node.dealt)
            for node in _nodes(self._root)
        )

    def of(self, items: Int64s) -> Int64s:
        """(rows,), the partition of each row. items: (rows, columns), as in Sample."""
        found = np.empty(len(items), np.int64)
        self._place(self._root, np.arange(len(items)), items, found)
        return found

    def _place(self, node: _Node, rows: Int64s, items: Int64s, found: Int64s) -> None:
        if node.column is None:
            found[rows] = self._at(node.begin + node.rows / 2)
            return
        own = items[rows, node.column]
        child = np.full(len(own), -1)
        if len(node.known):
            at = np.minimum(np.searchsorted(node.known, own), len(node.known) - 1)
            child = np.where(node.known[at] == own, at, -1)
        others = child < 0
        found[rows[others]] = self._at(node.begin + node.dealt * _shares(own[others]))
        for number, below in enumerate(node.children):
            mine = rows[child == number]
            if len(mine):
                self._place(below, mine, items, found)

    def _at(self, place: Floats | float) -> Int64s:
        at = np.clip(np.floor_divide(place, self.size), 0, self.count - 1)
        return np.asarray(at, np.int64)


def _grown(sample: DrawnSample, rows: Int64s, columns: tuple[int, ...], size: float) -> _Node:
    """The tree over some rows of the sample. columns: in which they differ."""
    total = len(rows) * sample.scale
    shared = _Shared(sample, rows, columns)
    parts = total / size
    if parts <= 1 or not columns or len(rows) < 2:
        return _Node(total, shared.saved(None, 1.0))
    saved = {column: shared.saved(column, parts) for column in columns}
    enough = _NEAR * max(saved.values())
    column = min((c for c in columns if saved[c] >= enough), key=lambda c: shared.partners((c,)))
    items, inverse, counts = np.unique(
        sample.items[rows, column], return_inverse=True, return_counts=True
    )
    heavy = np.flatnonzero(counts * sample.scale > size)
    node = _Node(total, saved[column], column, items[heavy])
    left = tuple(one for one in columns if one != column)
    node.children = [_grown(sample, rows[inverse == at], left, size) for at in heavy]
    node.dealt = total - sum(child.rows for child in node.children)
    return node


class _Shared:
    """What some rows of a sample share. columns: that they may share."""

    def __init__(self, sample: DrawnSample, rows: Int64s, columns: tuple[int, ...]) -> None:
        self._columns, self._scale = columns, sample.scale
        self._items = sample.items[rows]
        lengths = sample.lengths[rows]
        self._lengths = lengths.mean(axis=0) if len(rows) else np.zeros(lengths.shape[1])
        self._codes: dict[tuple[int, ...], Int64s] = {(): np.zeros(len(rows), np.int64)}
        self._partners: dict[tuple[int, ...], float] = {}

    def partners(self, columns: Sequence[int]) -> float:
        """How many other rows of the table share a row's items of some columns, on average."""
        key = tuple(sorted(columns))
        if key not in self._partners:
            counts = np.bincount(self._coded(key))
            pairs = float((counts.astype(np.float64) ** 2).sum()) - len(self._items)
            self._partners[key] = self._scale * pairs / max(1, len(self._items))
        return self._partners[key]

    def saved(self, by: int | None, parts: float) -> float:
        """What a row shares with the one before it in a good order of its part.

        by: the column by which rows are divided into so many parts, those that share it together.
        Others meet by chance. Columns follow by what they save: a greedy order (paper 000, 4.2).
        """
        order: list[int] = []
        left, total = list(self._columns), 0.0
        while left:
            gains = {column: self._gain([*order, column], by, parts) for column in left}
            best = max(left, key=lambda column: gains[column])
            if gains[best] <= 0:
                break
            total += gains[best]
            order.append(best)
            left.remove(best)
        return total

    def _gain(self, prefix: Sequence[int], by: int | None, parts: float) -> float:
        """What the last column of a prefix saves in a row."""
        partners = self.partners(prefix) / (1.0 if by is None or by in prefix else parts)
        return float(self._lengths[prefix[-1]]) * partners / (1.0 + partners)

    def _coded(self, columns: tuple[int, ...]) -> Int64s:
        if columns not in self._codes:
            *before, last = columns
            own = np.unique(self._items[:, last], return_inverse=True)[1].reshape(-1)
            pairs = self._coded(tuple(before)) * (len(self._items) + 1) + own
            self._codes[columns] = np.unique(pairs, return_inverse=True)[1].reshape(-1)
        return self._codes[columns]


def _shares(items: Int64s) -> Floats:
    """(rows,), evenly spread from 0 to 1; equal items get the same."""
    mixed = items.astype(np.uint64) * _MIX
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIX
    mixed ^= mixed >> np.uint64(32)
    return (mixed >> np.uint64(11)) / float(1 << 53)


def _nodes(node: _Node) -> Iterator[_Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


@dataclass(frozen=True, slots=True)
class PlacedFields:
    """The fields of a call that prompts share in any order. columns: their names in a frame.

    names: as the model sees them. first: whether all prompts begin with the field.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    first: tuple[bool, ...]

    def of(self, batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """(rows, fields): the hash of each item, and what it weighs."""
        found = [
            _hashed(batch.column(batch.schema.get_field_index(column)), name, first)
            for column, name, first in zip(self.columns, self.names, self.first, strict=True)
        ]
        empty = np.zeros((batch.num_rows, 0), np.int64)
        hashes = np.column_stack([one[0] for one in found]) if found else empty
        lengths = np.column_stack([one[1] for one in found]) if found else empty
        return hashes, lengths

    def drawn(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The items of a sample, for the planner."""
        for batch in batches:
            hashes, lengths = self.of(batch)
            columns = [pa.array(list(table), pa.list_(pa.int64())) for table in (hashes, lengths)]
            yield pa.RecordBatch.from_arrays(columns, schema=DRAWN)


@dataclass(frozen=True, slots=True)
class Placing:
    """Gives each input its partition, in the column PLACE."""

    items: PlacedFields
    partitions: Partitions

    def over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with that column."""
        for batch in batches:
            places = self.partitions.of(self.items.of(batch)[0])
            yield batch.append_column(PLACE, pa.array(places, pa.int32()))


def sample_of(drawn: pa.Table, total: int) -> DrawnSample:
    """The sample that tasks have drawn. total: of how many inputs."""
    hashes, lengths = (
        np.array(drawn.column(name).to_pylist(), np.int64).reshape(drawn.num_rows, -1)
        for name in (HASHES, LENGTHS)
    )
    return DrawnSample(hashes, lengths, total)


def _hashed(column: pa.Array, name: str, is_first: bool) -> tuple[Int64s, Int64s]:
    coded = column.dictionary_encode(null_encoding="encode")
    texts = coded.dictionary.to_pylist()
    label = name.encode("utf-8", "surrogatepass")
    hashes = np.array([_hash(label, text) for text in texts], np.int64)
    lengths = np.array([len(name) + len(text or "null") + _AROUND for text in texts], np.int64)
    codes = coded.indices.to_numpy(zero_copy_only=False)
    return hashes[codes], lengths[codes] * (_FIRST if is_first else 1)


def _hash(label: bytes, text: str | None) -> int:
    content = b"\0" if text is None else b"\1" + text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, key=hashlib.md5(label).digest())
    return int.from_bytes(digest.digest(), "little", signed=True)
