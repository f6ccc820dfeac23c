"""What turns a trie of item sets into an order of rows and fields. See native/solvers/trie.hpp."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery._native import Trie
from relquery.arrays import Bools, Int32s, Int64s
from relquery.table.items import Items
from relquery.table.prefixes import least_table
from relquery.table.side_by_side import go_on


class Texts(NamedTuple):
    """rank, shared: see relquery.table.items. least: of `shared`, see relquery.table.prefixes.

    column: (items,), a number per column or bag.
    """

    rank: Int32s
    shared: Int64s
    least: Int64s
    column: Int32s


def texts_of(items: Items) -> Texts:
    """What `arrange` needs to know about the texts."""
    column = np.zeros(len(items.rank), np.int32)
    for slot, bag in zip(items.slots, items.bags, strict=True):
        column[slot] = bag
    return Texts(items.rank, items.shared, least_table(items.shared), column)


def arrange(trie: Trie, texts: Texts, items: Int32s, stopped: Bools) -> tuple[Int64s, Int32s]:
    """(rows, columns by row id). Reorders the labels of the trie. items: (m, n)."""
    found = trie.arrange(*texts, items)
    go_on(stopped)
    return found
