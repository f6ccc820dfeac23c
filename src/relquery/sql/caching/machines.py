"""Which prompts are best served by one machine of a provider that has several."""

from __future__ import annotations

import numpy as np

from relquery.arrays import Int64s
from relquery.table.cost.blocks import Blocks
from relquery.table.cost.flight import prefixes_of


def together(blocks: Blocks, minimum: int, most: float | None) -> Int64s:
    """(n,), after how many blocks the prefix ends whose prompts go to one machine; 0 for none.

    minimum: tokens of the shortest prefix that is worth it. most: requests a minute that stay on
    one machine; None for any number.

    A machine reads nothing for the first request that it gets, and others take over once it has had
    its requests of a minute. So of n requests that share a prefix, about 1 / n and 1 / most read
    nothing. Each prompt takes the prefix of which it then reads the most: a shorter one is shared
    by more prompts, of which more go elsewhere. Without such a limit, the shortest serves all.
    """
    ends = blocks.ends
    if not ends.size:
        return np.zeros(len(ends), np.int64)
    sizes = alike(blocks)
    machines = np.ones(sizes.shape) if most is None else np.ceil(sizes / most)
    reads = np.where((sizes > 1) & (ends >= max(minimum, 1)), ends * (1 - machines / sizes), 0.0)
    chosen = (reads > 0).argmax(axis=1) if most is None else reads.argmax(axis=1)
    return np.where(reads.any(axis=1), chosen + 1, 0).astype(np.int64)


def alike(blocks: Blocks) -> Int64s:
    """(n, k), how many prompts have the same blocks up to this one, itself included."""
    first = prefixes_of(blocks)
    sizes = np.empty(first.shape, np.int64)
    for at, column in enumerate(first.T):
        sizes[:, at] = np.bincount(column, minlength=len(column))[column]
    return sizes
