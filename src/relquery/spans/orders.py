"""In which order the items of bags are asked, so that prompts begin alike.

Prompts that begin alike up to a bag are rows of one table, whose columns are that bag: to reorder
it is the bulk optimizer's work (paper 000, section 4). Orders asked earlier are kept, so that a
single query begins as one whose states may still be in the cache.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

Row = tuple[str, ...]
_Trie = dict[bytes, "_Trie"]

_MOST_KEPT = 200_000  # items of all orders asked earlier
_MOST_TRIED = 5_000  # items looked at for one row
_MOST_SHARED = 48  # items of a row that are ordered by what other rows hold


class Orders:
    """The orders in which bags were asked, by what stands before them."""

    def __init__(self) -> None:
        self._kept: dict[bytes, _Trie] = {}
        self._count = 0

    def choose(self, head: bytes, rows: Sequence[Row]) -> list[Row]:
        """An order of each row's items.

        head: names all that stands before these bags. rows: items as text, in the order given,
            which is kept where it is as good.

        Taken is what has most characters in common with the beginnings of rows before, or of what
        was asked earlier: the order given, that of the longest common beginning row by row, or that
        of `table.reorder`.
        """
        kept = self._kept.get(head, {})
        found = [list(rows), _one_by_one(rows, kept)]
        if len(rows) > 1:
            found.append(_all_at_once(rows))
        return max(found, key=lambda orders: _worth(orders, kept))

    def keep(self, head: bytes, row: Row) -> None:
        """Note that a row was asked in this order."""
        if self._count + len(row) > _MOST_KEPT:
            self._kept, self._count = {}, 0
        self._count += _add(self._kept.setdefault(head, {}), map(_name, row))


def _name(item: str) -> bytes:
    return hashlib.blake2b(item.encode(), digest_size=16).digest()


def _add(trie: _Trie, names: Iterable[bytes]) -> int:
    """Add a row; gives the number of new items."""
    new = 0
    for name in names:
        new += name not in trie
        trie = trie.setdefault(name, {})
    return new


def _worth(rows: Sequence[Row], kept: _Trie) -> int:
    """Characters that rows have in common with the beginning of one before, or of one kept."""
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
    """Each row begins as far as it can like one before it; then come the items of most rows."""
    count = Counter(item for row in rows for item in row)
    asked: _Trie = {}
    found = []
    for row in rows:
        by_name = {_name(item): item for item in row}
        held = Counter(map(_name, row))
        begin = max((_longest(held, by_name, trie) for trie in (kept, asked)), key=_characters)
        left = Counter(row) - Counter(begin)
        rest = [item for item in row if _taken(left, item)]
        found.append((*begin, *sorted(rest, key=lambda item: -count[item])))
        _add(asked, map(_name, found[-1]))
    return found


def _characters(row: Row) -> int:
    return sum(map(len, row))


def _taken(left: Counter[str], item: str) -> bool:
    """Whether the item is among those left, less one then."""
    left[item] -= 1
    return left[item] >= 0


def _longest(held: Counter[bytes], items: dict[bytes, str], trie: _Trie) -> Row:
    """The beginning in a trie that has most characters, of items that a row holds."""
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
    """Items that several rows hold, as `table.reorder` has them; the others behind."""
    from relquery.table.reorder import reorder  # takes a second, and most queries have no bag

    count = Counter(item for row in rows for item in set(row))
    shared = [
        sorted((item for item in row if count[item] > 1), key=lambda item: -count[item])
        for row in rows
    ]
    shared = [row[:_MOST_SHARED] for row in shared]
    width = max(map(len, shared), default=0)
    if not width:
        return list(rows)
    names = [f"item {column}" for column in range(width)]
    schedule = reorder(as_table(shared, names), bags=[names], weight="tokens")
    found = list(rows)
    for row, columns in zip(schedule.rows.tolist(), schedule.fields.tolist(), strict=True):
        begin = tuple(shared[row][column] for column in columns if column < len(shared[row]))
        left = Counter(rows[row]) - Counter(begin)
        found[row] = (*begin, *(item for item in rows[row] if _taken(left, item)))
    return found


def as_table(rows: Sequence[Sequence[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """Rows of items as columns; what a row lacks is a text of its own, for NULLs would be equal."""
    return {
        name: [
            row[column] if column < len(row) else f"{index}.{column}"
            for index, row in enumerate(rows)
        ]
        for column, name in enumerate(names)
    }
