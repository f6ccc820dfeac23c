"""What a provider bills if several requests are under way together.

A request reads only what requests wrote that began at least `gap` requests before it: the others
have not been answered yet. `billing.bill` is the case of a gap of 1. A request that marks a prefix
and cannot read it yet writes it, even if another request is just writing the same.
"""

from __future__ import annotations

import numpy as np

from relquery._native import hits_in_flight
from relquery.arrays import Int64s
from relquery.prices.price import Price
from relquery.table.cost.billing import Bill, Marks, machines_of
from relquery.table.cost.blocks import Blocks
from relquery.table.cost.prefix_tree import prefix_tree
from relquery.table.cost.tokens import Tokens

NEVER = 2**62
"""A gap with which nothing is ever read."""


def bill_automatic(tokens: Tokens, price: Price, gap: int = 1, rate: float | None = None) -> Bill:
    """The bill of prompts, in the order sent, where the provider caches by itself.

    rate: requests a minute, of which a provider may take only some with one prefix to the machine
    that has it; None if that does not matter.
    """
    tree = prefix_tree(tokens, machines_of(tokens, price, rate))
    hits = hits_in_flight(tree.parent, tree.depth, tree.leaf, gap)
    steps = (hits - price.minimum) // price.granularity * price.granularity
    read = int(np.where(hits < price.minimum, 0, price.minimum + steps).sum())
    nothing: Marks = [()] * len(tokens)
    return Bill(price, len(tokens.ids) - read, 0, read, nothing)


def bill_marked(blocks: Blocks, price: Price, marks: Marks, gap: int = 1) -> Bill:
    """The bill of prompts, in the order sent, that mark these prefixes.

    marks: per request prefix lengths in tokens, ascending, each where a block ends.
    """
    ends = blocks.ends
    prefixes = prefixes_of(blocks)
    begun: dict[tuple[int, int], int] = {}  # when the first request with a mark there began
    uncached = written = read = 0
    for at, own in enumerate(marks):
        length, found = int(ends[at, -1]) if ends.shape[1] else 0, 0
        places = np.searchsorted(ends[at], own).tolist() if own else []
        keys = [(place, int(prefixes[at, place])) for place in places]
        for key, mark in zip(keys, own, strict=True):
            if begun.get(key, NEVER) <= at - gap:
                found = mark
        last = own[-1] if own else 0
        for key in keys:
            begun.setdefault(key, at)
        read, written, uncached = read + found, written + last - found, uncached + length - last
    return Bill(price, uncached, written, read, marks)


def prefixes_of(blocks: Blocks) -> Int64s:
    """(n, k), the first prompt that has the same blocks up to this one."""
    ids = blocks.ids
    count, width = ids.shape
    first = np.zeros((count, width), np.int64)
    group = np.zeros(count, np.int64)
    for column in range(width):
        keys = group * len(blocks.sizes) + ids[:, column]
        _, places, group = np.unique(keys, return_index=True, return_inverse=True)
        first[:, column] = places[group]
    return first
