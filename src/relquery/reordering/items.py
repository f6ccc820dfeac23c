"""A table as sets of items: what the solvers order.

A labelled field is the item (column, text). NULL is sent as empty text and is the same item.
Columns of a bag contain interchangeable values (retrieved passages). There an item is just the
text, the same in every column. A row of m columns is then a set of m items. A second copy of a
passage in one row is a separate item, so no item is in a row twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from relquery._native import shared_with_previous
from relquery.arrays import Int32s, Int64s
from relquery.errors import ConfigError, UnknownColumnError
from relquery.reordering.encode import Columns

BAG_LABEL = "passage"


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """A table of n rows as sets of m items.

    slots: (m, n), item `slots[c, r]` is in column c of row r. Items of a column are numbered
        together, in the order of first appearance.
    bags: (m,), the same number for columns of one bag: its first column.
    lengths: (items,), characters of the value. labels: (items,), of the label before it.
    same: (items,), the item with the same text: usually itself, except for copies, and for NULL
        next to empty text.
    rank: (items,), unique place of "label: value" in alphabetical order.
    shared: (items,), by rank, leading characters shared with the text ranked just before.
    texts: per column, the distinct values as text; those of column c begin at item `offsets[c]`.
    written: per column, the label before its values.
    """

    slots: Int32s
    bags: Int32s
    lengths: Int64s
    labels: Int64s
    same: Int32s
    rank: Int32s
    shared: Int64s
    names: tuple[str, ...]
    texts: tuple[pa.Array, ...]
    offsets: Int64s
    written: tuple[str, ...]

    def in_bag(self, column: int) -> bool:
        """Whether a column's values are interchangeable with those of another."""
        return _is_bag(self.bags, column)

    def texts_in_order(
        self, rows: Int64s, fields: npt.NDArray[np.integer], prefix: str = ""
    ) -> list[str]:
        """The prompts of a schedule: the prefix, then one line per item."""
        lines = self.lines
        sent = self.same[self.slots][fields, rows[:, None]]
        return [prefix + "".join([lines[item] for item in row]) for row in sent.tolist()]

    @property
    def lines(self) -> list[str]:
        """By item, "label: value" and a line break; there are none for copies."""
        pairs = zip(self.written, self.texts, strict=True)
        listed = ((label, texts.fill_null("").to_pylist()) for label, texts in pairs)
        return [f"{label}{text}\n" for label, texts in listed for text in texts]

    @property
    def beginnings(self) -> Beginnings:
        """The prefixes that items share, in characters."""
        return Beginnings(self.rank, self.shared, least_table(self.shared))

    @property
    def characters(self) -> Int64s:
        """(items,), characters of the items written "label: value"."""
        return self.lengths + self.labels


def itemize(columns: Columns, bags: Sequence[Sequence[str]] = ()) -> Items:
    """Columns as items; `bags` names the columns of each bag.

    Raises UnknownColumnError, and ConfigError for a column in two bags or an invalid bag.
    """
    bag_of = _bag_of(columns.names, bags)
    labels = _labels(columns, bag_of)
    slots = (columns.codes + columns.offsets[:-1].astype(np.int32)).T
    same = np.arange(len(columns.lengths), dtype=np.int32)
    for bag in np.unique(bag_of):
        members = np.flatnonzero(bag_of == bag)
        if len(members) > 1:
            _unify(columns, members, same)
        else:
            _unify_null(columns.values[bag], same[slice(*columns.offsets[bag : bag + 2])])
    lengths = columns.lengths
    sizes = np.diff(columns.offsets)
    label_lengths = np.repeat([len(label) for label in labels], sizes).astype(np.int64)
    if (same != np.arange(len(same))).any():
        slots = same[slots]
    if len(bags):
        slots, copies = _number_copies(slots, bag_of, len(same))
        same = np.concatenate([same, copies]).astype(np.int32)
        lengths, label_lengths = lengths[same], label_lengths[same]
    rank, shared = _rank(columns, labels, bag_of)
    if len(same) > len(rank):
        rank, shared = _rank_copies(rank, shared, same, lengths + label_lengths)
    return Items(
        slots=np.ascontiguousarray(slots, dtype=np.int32),
        bags=bag_of,
        lengths=lengths,
        labels=label_lengths,
        same=same,
        rank=rank,
        shared=shared,
        names=columns.names,
        texts=columns.values,
        offsets=columns.offsets,
        written=labels,
    )


def _labels(columns: Columns, bag_of: Int32s) -> tuple[str, ...]:
    """The label of each column; empty for a column without a name."""
    if not columns.labelled:
        return ("",) * len(columns.names)
    names = (BAG_LABEL if _is_bag(bag_of, i) else name for i, name in enumerate(columns.names))
    return tuple(f"{name}: " if name else "" for name in names)


def _bag_of(names: Sequence[str], bags: Sequence[Sequence[str]]) -> Int32s:
    bag_of = np.arange(len(names), dtype=np.int32)
    taken: set[int] = set()
    if not _are_bags(bags):
        raise ConfigError(
            f"bags is {bags!r}; it must be a list of bags, and each bag a list of column names: "
            "[['p1', 'p2', 'p3']]."
        )
    for bag in bags:
        for name in bag:
            if name not in names:
                raise UnknownColumnError(name, "the table", names)
        members = [names.index(name) for name in dict.fromkeys(bag)]
        if taken.intersection(members):
            twice = ", ".join(names[i] for i in sorted(taken.intersection(members)))
            raise ConfigError(f"Column {twice} is in two bags. Name each column in one bag only.")
        taken.update(members)
        bag_of[members] = min(members, default=0)
    return bag_of


def _are_bags(given: object) -> bool:
    return _is_list(given) and all(
        _is_list(bag) and all(isinstance(name, str) for name in bag) for bag in given
    )


def _is_list(given: object) -> TypeGuard[Collection[object]]:
    return isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping)


def _is_bag(bag_of: Int32s, column: int) -> bool:
    return bool(np.count_nonzero(bag_of == bag_of[column]) > 1)


def _unify(columns: Columns, members: Int64s, same: Int32s) -> None:
    """Merge equal texts in a bag's columns into the first item with this text."""
    numbers: dict[str, int] = {}
    for column in members:
        offset = int(columns.offsets[column])
        for code, text in enumerate(columns.values[column].fill_null("").to_pylist()):
            same[offset + code] = numbers.setdefault(text, offset + code)


def _unify_null(values: pa.Array, same: Int32s) -> None:
    """Merge NULL and empty text of a column into one item, as they are sent alike."""
    empty = pc.index(values, pa.scalar("", values.type)).as_py() if values.null_count else -1
    if empty >= 0:
        null = pc.index(values.is_null(), True).as_py()
        same[max(empty, null)] = same[min(empty, null)]


def _number_copies(slots: Int32s, bag_of: Int32s, items: int) -> tuple[Int32s, Int32s]:
    """Make each further copy of a value in a row a separate item: (slots, copied items)."""
    numbers: dict[tuple[int, int], int] = {}
    slots = slots.copy()
    for bag in np.unique(bag_of):
        members = np.flatnonzero(bag_of == bag)
        seen = np.sort(slots[members], axis=0)
        for row in np.flatnonzero((seen[1:] == seen[:-1]).any(axis=0)):
            copies: dict[int, int] = {}
            for column in members:
                item = int(slots[column, row])
                copy = copies[item] = copies.get(item, -1) + 1
                if copy:
                    slots[column, row] = numbers.setdefault((item, copy), items + len(numbers))
    return slots, np.array([item for item, _ in numbers], dtype=np.int32)


def _rank(columns: Columns, labels: Sequence[str], bag_of: Int32s) -> tuple[Int32s, Int64s]:
    """(rank, shared) without copies; see Items. Texts of two columns share at most their labels."""
    order = np.empty(len(columns.lengths), np.int32)
    shared = np.zeros(len(order), np.int64)
    start, before = 0, ""
    for bag in sorted(np.unique(bag_of).tolist(), key=lambda bag: (labels[bag], bag)):
        members = np.flatnonzero(bag_of == bag)
        items = np.concatenate([np.arange(*columns.offsets[c : c + 2]) for c in members])
        arrays = [columns.values[c].cast(pa.large_string()) for c in members]
        text = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        text = text.fill_null("") if text.null_count else text
        by_text = pc.array_sort_indices(text).to_numpy().astype(np.int64)
        end = start + len(by_text)
        if end > start:
            order[start:end] = items[by_text]
            prefixes = _common_prefixes(text, by_text)
            shared[start + 1 : end] = len(labels[bag]) + prefixes
            shared[start] = agreement(before, labels[bag])
        start, before = end, labels[bag]
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(start)
    return rank, shared


def _rank_copies(
    rank: Int32s, shared: Int64s, same: Int32s, characters: Int64s
) -> tuple[Int32s, Int64s]:
    """(rank, shared) with each copy ranked right after its original."""
    first = np.concatenate([rank, rank[same[len(rank) :]]])
    order = np.argsort(first, kind="stable")
    ranks = np.empty(len(same), np.int32)
    ranks[order] = np.arange(len(same))
    is_copy = order >= len(rank)
    return ranks, np.where(is_copy, characters[order], shared[first[order]])


def agreement(a: Sequence[object], b: Sequence[object]) -> int:
    """The number of leading characters that two texts share, or leading tokens."""
    differing = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differing, min(len(a), len(b)))


def _common_prefixes(texts: pa.Array, order: Int64s) -> Int64s:
    """(n - 1,), leading characters that each text in order shares with the one before."""
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return shared_with_previous(np.frombuffer(data or b"", np.uint8), offsets, order)


BLOCK = 16


class Beginnings(NamedTuple):
    """The prefixes that the texts of items share, from those of alphabetical neighbours.

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
