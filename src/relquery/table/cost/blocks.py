"""Prompts as blocks of text: a request can be marked where a block ends, and nowhere else.

The blocks are the text before the fields, then one per field, then the text after them. Each is
tokenised by itself, as providers get them as separate parts of a message.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.table.compiled import compiled
from relquery.table.cost.prefix_tree import PrefixTree, prefix_tree
from relquery.table.cost.tokens import Tokens


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
        count, width = self.ids.shape
        offsets = np.arange(count + 1, dtype=np.int64) * width
        tree = prefix_tree(Tokens(np.ascontiguousarray(self.ids).reshape(-1), offsets))
        ends = self.ends
        depth = _in_tokens(tree.parent, tree.depth, tree.leaf, ends)
        before = np.concatenate([np.zeros((count, 1), np.int64), ends], axis=1)
        return tree._replace(depth=depth, hits=before[np.arange(count), tree.hits])


@compiled
def _in_tokens(parent: Int64s, depth: Int64s, leaf: Int64s, ends: Int64s) -> Int64s:
    """(nodes,), depth in tokens. depth: in blocks."""
    tokens = np.zeros(len(parent), np.int64)
    for i in range(len(leaf)):
        node = leaf[i]
        while parent[node] != node:
            tokens[node] = ends[i, depth[node] - 1]
            node = parent[node]
    return tokens
