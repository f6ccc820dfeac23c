"""Prompts as blocks of text: a request can be marked where a block ends, and nowhere else.

The blocks are the text before the fields, then one per field, then the text after them. Each is
tokenised by itself, as providers get them as separate parts of a message.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery._native import block_tree
from relquery.arrays import Int32s, Int64s
from relquery.table.cost.tokens import PrefixTree


class Blocks(NamedTuple):
    """Prompts in the order sent.

    ids: (n, k), the number of each block of each prompt; equal numbers are equal texts.
    sizes: (blocks,), tokens of each block, by number.
    """

    ids: Int32s
    sizes: Int64s

    @classmethod
    def of(cls, sent: Int32s, sizes: Int64s, head: int, tail: int = 0) -> Blocks:
        """From items in the order sent.

        sent: (n, m), items. sizes: (items,), tokens of their lines. head, tail: tokens of the text
        before and after the fields of every row; 0: no such block.
        """
        parts, numbers = [sent], np.arange(2, dtype=np.int32) + len(sizes)
        head_of_all, tail_of_all = (np.full((len(sent), 1), number, np.int32) for number in numbers)
        if head:
            parts.insert(0, head_of_all)
        if tail:
            parts.append(tail_of_all)
        return cls(np.concatenate(parts, axis=1), np.concatenate([sizes, [head, tail]]))

    @property
    def total(self) -> int:
        """Tokens of all prompts."""
        return int(self.sizes[self.ids].sum())

    @property
    def ends(self) -> Int64s:
        """(n, k), tokens up to the end of each block."""
        return np.cumsum(self.sizes[self.ids], axis=1, dtype=np.int64)

    def tree(self) -> PrefixTree:
        """The tree of prefixes that end where a block ends; depths and hits are in tokens."""
        return PrefixTree(*block_tree(self.ids, self.ends))
