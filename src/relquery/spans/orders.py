"""The choice of an order for the items of bags, so that prompts share prefixes.

Prompts that are equal up to a bag form the rows of a table whose columns are that bag. Reordering
this table is the task of paper 000, section 4. Earlier orders are kept, so that a single query
can start like one whose states may still be in the cache.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relquery.reordering.schedule import Schedule

Row = tuple[str, ...]
_Trie = dict[bytes, "_Trie"]

_MOST_KEPT = 200_000  # items in all earlier orders
_MOST_TRIED = 5_000  # prefixes tried for one row
_MOST_SHARED = 48  # items per row that `reorder` arranges


class Orders:
    """The orders in which bags were sent, by the text before them."""

    def __init__(self) -> None:
        self._kept: dict[bytes, _Trie] = {}
        self._count = 0

    def choose(self, head: bytes, rows: Sequence[Row]) -> list[Row]:
        """An order for each row's items.

        head: a hash of everything before these bags. rows: items as text, in the given order. That
            order is kept if it is as good.

        There are three candidates: the given order, the longest common prefix row by row, and
        `table.reorder`. The one that shares the most prefix characters with previous rows and
        earlier prompts wins.
        """
        kept = self._kept.get(head, {})
        candidates = [list(rows), _one_by_one(rows, kept)]
        if len(rows) > 1:
            candidates.append(_all_at_once(rows))
        return max(candidates, key=lambda orders: _worth(orders, kept))

    def keep(self, head: bytes, row: Row) -> None:
        """Record that a row was sent in this order."""
        if self._count + len(row) > _MOST_KEPT:
            self._kept, self._count = {}, 0
        self._count += _add(self._kept.setdefault(head, {}), map(_name, row))


def _name(item: str) -> bytes:
    return hashlib.blake2b(item.encode(), digest_size=16).digest()


def _add(trie: _Trie, names: Iterable[bytes]) -> int:
    """Add a row. Returns the number of new trie nodes."""
    new = 0
    for name in names:
        new += name not in trie
        trie = trie.setdefault(name, {})
    return new


def _worth(rows: Sequence[Row], kept: _Trie) -> int:
    """The number of prefix characters that rows share with an earlier row or a kept order."""
    asked: _Trie = {}
    total = 0
    for row in rows:
        names = list(map(_name, row))
        total += max(_shared(row, names, trie) for trie in (kept, asked))
        _add(asked, names)
    return total


def _shared(row: Row, names: Sequence[bytes], trie: _Trie) -> int:
    characters = 0
    for item, name in zip(row, names, strict=True):
        below = trie.get(name)
        if below is None:
            break
        trie = below
        characters += len(item)
    return characters


def _one_by_one(rows: Sequence[Row], kept: _Trie) -> list[Row]:
    """Start each row with the longest prefix of an earlier one; then put the most common items."""
    count = Counter(item for row in rows for item in row)
    asked: _Trie = {}
    ordered = []
    for row in rows:
        by_name = {_name(item): item for item in row}
        held = Counter(map(_name, row))
        begin = max((_longest(held, by_name, trie) for trie in (kept, asked)), key=_characters)
        left = Counter(row) - Counter(begin)
        rest = [item for item in row if _taken(left, item)]
        ordered.append((*begin, *sorted(rest, key=lambda item: -count[item])))
        _add(asked, map(_name, ordered[-1]))
    return ordered


def _characters(row: Row) -> int:
    return sum(map(len, row))


def _taken(left: Counter[str], item: str) -> bool:
    """Whether the item is still in `left`; removes one copy of it."""
    left[item] -= 1
    return left[item] >= 0


def _longest(held: Counter[bytes], items: dict[bytes, str], trie: _Trie) -> Row:
    """The prefix in a trie with the most characters that consists of the row's items."""
    best: Row = ()
    todo: list[tuple[_Trie, Row, Counter[bytes]]] = [(trie, (), held)]
    for _ in range(_MOST_TRIED):
        if not todo:
            break
        below, begin, left = todo.pop()
        best = max(best, begin, key=_characters)
        for name in left if len(left) < len(below) else below:
            if name in below and left[name] > 0:
                todo.append((below[name], (*begin, items[name]), left - Counter((name,))))
    return best


def _all_at_once(rows: Sequence[Row]) -> list[Row]:
    """The items that several rows share as `shared_in_order` has them; the others after them."""
    arranged, ordered = shared_in_order(rows), list(rows)
    if arranged is None:
        return ordered
    shared, schedule = arranged
    for row, columns in zip(schedule.rows.tolist(), schedule.fields.tolist(), strict=True):
        begin = tuple(shared[row][column] for column in columns if column < len(shared[row]))
        left = Counter(rows[row]) - Counter(begin)
        ordered[row] = (*begin, *(item for item in rows[row] if _taken(left, item)))
    return ordered


def shared_in_order(
    rows: Sequence[Sequence[str]], cache_tokens: int | None = None
) -> tuple[list[list[str]], Schedule] | None:
    """(the items of each row that others have too, an order of rows and of these).

    The items of a row are a table's bag; only the most widely shared ones count. None if no item
    is shared. cache_tokens: see `reorder`.
    """
    from relquery.reordering.reorder import reorder  # a slow import, and most queries have no bag

    count = Counter(item for row in rows for item in set(row))
    shared = [
        sorted((item for item in row if count[item] > 1), key=lambda item: -count[item])
        for row in rows
    ]
    shared = [row[:_MOST_SHARED] for row in shared]
    width = max(map(len, shared), default=0)
    if not width:
        return None
    table = as_table(shared, [f"item {column}" for column in range(width)])
    order = reorder(table, bags=[list(table)], weight="tokens", cache_tokens=cache_tokens)
    return shared, order


def as_table(rows: Sequence[Sequence[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """Rows of items as columns. Missing items become unique texts, because NULLs would be equal."""
    return {
        name: [
            row[column] if column < len(row) else f"{index}.{column}"
            for index, row in enumerate(rows)
        ]
        for column, name in enumerate(names)
    }
