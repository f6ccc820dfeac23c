"""A radix tree of prompts by tokens, which contains every prefix that two prompts share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relquery import _native
from relquery.arrays import Int64s
from relquery.table.cost.tokens import Tokens

FOREVER = 2**62  # a window that no schedule exceeds


class PrefixTree(NamedTuple):
    """The prompts as a radix tree: there is a node wherever prompts diverge or end.

    parent, depth: (nodes,), depth in tokens; roots have depth 0 and are their own parents.
    leaf: (n,), the node where each prompt ends. hits: (n,), tokens shared with earlier prompts.
    """

    parent: Int64s
    depth: Int64s
    leaf: Int64s
    hits: Int64s


def prefix_tree(tokens: Tokens, roots: Int64s | None = None, window: int = FOREVER) -> PrefixTree:
    """Build the tree of all prompts; O(tokens) time, O(prompts) space.

    roots: (n,), which cache each prompt is sent to, counted from 0; None: one for all.
    window: a prefix counts as a hit if one of the `window` prompts before had it.
    """
    if roots is None:
        roots = np.zeros(len(tokens), np.int64)
    return PrefixTree(*_native.prefix_tree(tokens.ids, tokens.offsets, roots, window))
