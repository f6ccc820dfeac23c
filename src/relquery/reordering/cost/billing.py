"""The bill of a provider for a schedule, and the breakpoints that make it cheapest.

Requests are sent one at a time, in order; only input tokens are billed here. Given a rate, request
i is sent `i / rate` minutes after the first; without one, no cache entry expires and no machine
overflows.

**Automatic caches** serve the longest prefix that an earlier request had, rounded down to the
provider's granularity, and store everything for free. If a provider limits the requests per minute
on one prefix, the requests of a minute that share their first `minimum` tokens fill one machine up
to the limit, then a second, and so on. The first machine keeps its cache from minute to minute.
Each further one starts empty, as the overflow of the next minute may go to a different machine.

**Breakpoints** are set where prompts diverge. A request that marks prefixes reads the longest one
that is cached, writes from there to its longest mark, and pays the rest uncached:

    cost = read x p + write x (q - p) + uncached x (length - q)

A group is all requests that share a prefix; a gap longer than an entry's lifetime splits it. The
first request of a group writes its prefix and the others read it, so the tokens between a mark and
the next one above it cost `write + (n - 1) x read` instead of `n x uncached` for a group of n,
whatever is marked elsewhere. What the marks save is therefore a sum over the marks, each worth
(tokens to the next mark above) x (a factor of its group), and the best set comes from a dynamic
program over the tree of groups whose state is the next mark above and the marks still allowed.

A request needs a mark for each prefix that it is the first to write, and one for the prefix that it
reads; the number of marks is limited. Using an entry also keeps its shorter prefixes alive.

Prompts that are given as tokens may be marked at any token, prompts in blocks where a block ends.

**Several requests under way** (`bill_automatic`, `bill_marked`): a request reads only what requests
wrote that began at least `gap` requests before it, as the others have not been answered yet; `bill`
is the case of a gap of 1. A request that marks a prefix and cannot read it yet writes it, even if
another request is just writing the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from relquery._native import block_tree, cheapest_marks, hits_in_flight, machines
from relquery.arrays import Int32s, Int64s
from relquery.errors import ConfigError
from relquery.prices.price import Price
from relquery.reordering.cost.tokens import FOREVER, PrefixTree, Tokens, prefix_tree

Marks = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Bill:
    """Input tokens by price category; they add up to the tokens sent.

    breakpoints: per request the prefix lengths, in tokens and ascending, that it should mark;
        empty for automatic caches.
    """

    price: Price
    uncached: int
    written: int
    read: int
    breakpoints: Marks = field(repr=False)

    @property
    def tokens(self) -> int:
        return self.uncached + self.written + self.read

    @property
    def usd(self) -> float:
        return self.price.usd(self.uncached, self.written, self.read)

    @property
    def usd_without_cache(self) -> float:
        return self.price.usd(self.tokens, 0, 0)

    @property
    def savings(self) -> float:
        """Share of the cost without a cache, from 0 to 1."""
        return 1 - self.usd / self.usd_without_cache if self.tokens else 0.0


def bill(
    prompts: Tokens | Blocks, price: Price, *, requests_per_minute: float | None = None
) -> Bill:
    """What sending these prompts costs; see the module for the model.

    prompts: in blocks only if the price has breakpoints. requests_per_minute: how fast they are
    sent. Raises ConfigError if it is not above 0. Prompts of several tiers are billed by the mean
    price of all tokens.
    """
    if requests_per_minute is not None and not requests_per_minute > 0:
        raise ConfigError(
            f"requests_per_minute is {requests_per_minute}; it must be above 0, or None if "
            "neither expiry nor overflow matters."
        )
    if price.tiers:
        price = price.of_prompts(prompts.lengths.tolist())
    if isinstance(prompts, Blocks):
        assert price.breakpoints, "an automatic cache does not know blocks"
        return _bill_breakpoints(prompts.tree(), prompts.total, price, requests_per_minute)
    if price.breakpoints:
        tree = prefix_tree(prompts)
        return _bill_breakpoints(tree, len(prompts.ids), price, requests_per_minute)
    return _bill_automatic(prompts, price, requests_per_minute)


def _window(price: Price, rate: float | None) -> int:
    """The number of requests after which an unused entry expires."""
    if rate is None or price.lifetime_s is None:
        return FOREVER
    return int(min(price.lifetime_s * rate / 60, FOREVER))


def machines_of(tokens: Tokens, price: Price, rate: float | None) -> Int64s | None:
    """(n,), the machine of each request at an automatic cache that spreads them; None for one.

    rate: requests a minute.
    """
    if rate is None or price.requests_per_minute is None:
        return None
    tree, limit = prefix_tree(tokens), price.requests_per_minute
    return machines(tree.parent, tree.depth, tree.leaf, price.minimum, rate, limit)


def _bill_automatic(tokens: Tokens, price: Price, rate: float | None) -> Bill:
    roots = machines_of(tokens, price, rate)
    return _bill_hits(tokens, prefix_tree(tokens, roots, _window(price, rate)).hits, price)


def _bill_hits(tokens: Tokens, hits: Int64s, price: Price) -> Bill:
    """The bill where hits are rounded down to what an automatic cache serves."""
    steps = (hits - price.minimum) // price.granularity * price.granularity
    read = int(np.where(hits < price.minimum, 0, price.minimum + steps).sum())
    return Bill(price, len(tokens.ids) - read, 0, read, [()] * len(tokens))


def _bill_breakpoints(tree: PrefixTree, total: int, price: Price, rate: float | None) -> Bill:
    written, read, positions, ends = cheapest_marks(
        tree.parent,
        tree.depth,
        tree.leaf,
        _window(price, rate),
        price.uncached,
        price.write,
        price.read,
        price.minimum,
        price.breakpoints,
    )
    flat, bounds = positions.tolist(), ends.tolist()
    marks = [tuple(flat[a:b]) for a, b in pairwise([0, *bounds])]
    return Bill(price, total - written - read, written, read, marks)


NEVER = 2**62
"""A gap with which nothing is ever read."""


def bill_automatic(tokens: Tokens, price: Price, gap: int = 1, rate: float | None = None) -> Bill:
    """The bill of prompts, in the order sent, where the provider caches by itself.

    rate: requests a minute, of which a provider may take only some with one prefix to the machine
    that has it; None if that does not matter.
    """
    tree = prefix_tree(tokens, machines_of(tokens, price, rate))
    return _bill_hits(tokens, hits_in_flight(tree.parent, tree.depth, tree.leaf, gap), price)


def bill_marked(blocks: Blocks, price: Price, marks: Marks, gap: int = 1) -> Bill:
    """The bill of prompts, in the order sent, that mark these prefixes.

    marks: per request prefix lengths in tokens, ascending, each where a block ends.
    """
    ends = blocks.ends
    prefixes = prefixes_of(blocks)
    begun: dict[tuple[int, int], int] = {}  # when the first request with a mark there began
    uncached = written = read = 0
    for index, own in enumerate(marks):
        length, hit = int(ends[index, -1]) if ends.shape[1] else 0, 0
        places = np.searchsorted(ends[index], own).tolist() if own else []
        keys = [(place, int(prefixes[index, place])) for place in places]
        for key, mark in zip(keys, own, strict=True):
            if begun.get(key, NEVER) <= index - gap:
                hit = mark
        last = own[-1] if own else 0
        for key in keys:
            begun.setdefault(key, index)
        read, written, uncached = read + hit, written + last - hit, uncached + length - last
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


class Blocks(NamedTuple):
    """Prompts as blocks of text, in the order sent. A request can be marked where a block ends.

    The blocks are the text before the fields, then one per field, then the text after them. Each is
    tokenised by itself, as providers get them as separate parts of a message.

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
    def lengths(self) -> Int64s:
        """(n,), tokens of each prompt."""
        sizes: Int64s = self.sizes[self.ids].sum(axis=1)
        return sizes

    @property
    def total(self) -> int:
        """Tokens of all prompts."""
        return int(self.lengths.sum())

    @property
    def ends(self) -> Int64s:
        """(n, k), tokens up to the end of each block."""
        return np.cumsum(self.sizes[self.ids], axis=1, dtype=np.int64)

    def tree(self) -> PrefixTree:
        """The tree of prefixes that end where a block ends; depths and hits are in tokens."""
        return PrefixTree(*block_tree(self.ids, self.ends))
