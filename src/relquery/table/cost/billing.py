"""What a provider bills for a schedule, and the breakpoints that make it cheapest.

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
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Floats, Int64s
from relquery.errors import ConfigError
from relquery.prices.price import Price
from relquery.table.compiled import compiled
from relquery.table.cost.blocks import Blocks
from relquery.table.cost.prefix_tree import FOREVER, PrefixTree, prefix_tree
from relquery.table.cost.tokens import Tokens

Marks = list[tuple[int, ...]]
NOTHING = 1e-9  # USD per million tokens; a smaller gain is a rounding error


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
    sent. Raises ConfigError if it is not above 0.
    """
    if requests_per_minute is not None and not requests_per_minute > 0:
        raise ConfigError(
            f"requests_per_minute is {requests_per_minute}; it must be above 0, or None if "
            "neither expiry nor overflow matters."
        )
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
    tree, limit = prefix_tree(tokens), float(price.requests_per_minute)
    return _machines(tree, price.minimum, float(rate), limit)


def _bill_automatic(tokens: Tokens, price: Price, rate: float | None) -> Bill:
    machines = machines_of(tokens, price, rate)
    hits = prefix_tree(tokens, machines, _window(price, rate)).hits
    steps = (hits - price.minimum) // price.granularity * price.granularity
    read = int(np.where(hits < price.minimum, 0, price.minimum + steps).sum())
    nothing: Marks = [()] * len(tokens)
    return Bill(price, len(tokens.ids) - read, 0, read, nothing)


@compiled
def _machines(tree: PrefixTree, minimum: int, rate: float, limit: float) -> Int64s:
    """(n,), the machine of each request; machine 0 keeps its cache."""
    sent = np.zeros(len(tree.parent), np.int64)  # in this minute, by the node of the first tokens
    minute_of = np.full(len(tree.parent), -1, np.int64)
    machines = np.zeros(len(tree.leaf), np.int64)
    started, used, minute = 0, 0, 0  # further machines: before this minute, up to now
    for i in range(len(machines)):
        if int(i / rate) != minute:
            minute, started = int(i / rate), used
        node = tree.leaf[i]
        if tree.depth[node] < minimum:
            continue
        while tree.parent[node] != node and tree.depth[tree.parent[node]] >= minimum:
            node = tree.parent[node]
        if minute_of[node] != minute:
            minute_of[node], sent[node] = minute, 0
        further = int(sent[node] / limit)
        sent[node] += 1
        machines[i] = started + further if further else 0
        used = max(used, machines[i])
    return machines


class _Groups(NamedTuple):
    """The tree of prefixes with a node for each group of requests.

    parent, depth, leaf: as in PrefixTree. requests: (groups,), number of requests. joined: whether
    the first request of the group is also the first request of its parent.
    """

    parent: Int64s
    depth: Int64s
    leaf: Int64s
    requests: Int64s
    joined: Bools


class _Forest(NamedTuple):
    """The groups worth a mark, by ascending depth.

    position: their prefix lengths. gain: USD per million tokens saved by marking. above: the
    nearest such ancestor, or -1. joined: as in _Groups.
    """

    position: Int64s
    gain: Floats
    above: Int64s
    joined: Bools


def _bill_breakpoints(tree: PrefixTree, total: int, price: Price, rate: float | None) -> Bill:
    groups = _group(tree, _window(price, rate))
    again = groups.requests - 1
    gain = groups.requests * price.uncached - price.write - again * price.read
    worth = (gain > NOTHING) & (groups.depth >= max(price.minimum, 1))
    # Blocks without tokens end where the one before them does: nothing to mark, and no deeper.
    worth &= groups.depth > groups.depth[groups.parent]
    order = np.lexsort((_levels(groups.parent), groups.depth))
    chosen = order[worth[order]]
    nearest = _nearest(groups.parent, order, worth)
    above = nearest[groups.parent[chosen]]
    forest = _Forest(groups.depth[chosen], gain[chosen], above, groups.joined[chosen])
    marked = _mark(forest, price.breakpoints)
    share = np.where(marked, forest.position - _marked_above(forest, marked), 0)
    written, read = int(share.sum()), int(share @ again[chosen])
    positions, ends = _paths(forest, marked, nearest[groups.leaf], price.breakpoints)
    flat, bounds = positions.tolist(), ends.tolist()
    marks = [tuple(flat[a:b]) for a, b in pairwise([0, *bounds])]
    return Bill(price, total - written - read, written, read, marks)


def _group(tree: PrefixTree, window: int) -> _Groups:
    count = _count_groups(tree, window)
    groups = _Groups(
        np.arange(count),
        np.zeros(count, np.int64),
        np.zeros(len(tree.leaf), np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.bool_),
    )
    _fill(groups, tree, window)
    return groups


@compiled
def _fill(groups: _Groups, tree: PrefixTree, window: int) -> None:
    last, now = np.full(len(tree.parent), -1, np.int64), np.zeros(len(tree.parent), np.int64)
    made = 0
    for i in range(len(tree.leaf)):
        node, below, began_below = tree.leaf[i], -1, False
        while node >= 0:
            began = last[node] < 0 or i - last[node] > window
            if began:
                now[node], groups.depth[made] = made, tree.depth[node]
                made += 1
            group = now[node]
            groups.requests[group] += 1
            if below >= 0:
                groups.parent[below] = group
                groups.joined[below] = groups.joined[below] or (began and began_below)
            else:
                groups.leaf[i] = group
            last[node], below, began_below = i, group, began
            node = tree.parent[node] if tree.parent[node] != node else -1


@compiled
def _count_groups(tree: PrefixTree, window: int) -> int:
    last = np.full(len(tree.parent), -1, np.int64)
    count = 0
    for i in range(len(tree.leaf)):
        node = tree.leaf[i]
        while node >= 0:
            count += last[node] < 0 or i - last[node] > window
            last[node] = i
            node = tree.parent[node] if tree.parent[node] != node else -1
    return count


def _levels(parent: Int64s) -> Int64s:
    """(groups,), how many groups are above each."""
    levels, above = np.zeros(len(parent), np.int64), np.arange(len(parent))
    while (moves := parent[above] != above).any():
        levels += moves
        above = parent[above]
    return levels


@compiled
def _nearest(parent: Int64s, order: Int64s, worth: Bools) -> Int64s:
    """(groups,), the nearest group at or above that is worth a mark, by its number, or -1."""
    nearest = np.full(len(parent), -1, np.int64)
    numbered = 0
    for node in order:
        if worth[node]:
            nearest[node] = numbered
            numbered += 1
        else:
            nearest[node] = nearest[parent[node]]
    return nearest


def _mark(forest: _Forest, limit: int) -> Bools:
    """Which groups to mark to save the most."""
    if _all_fit(forest.above, forest.joined, limit):  # avoids the table, which may be large
        return np.ones(len(forest.above), np.bool_)
    return _choose(forest, limit)


@compiled
def _all_fit(above: Int64s, joined: Bools, limit: int) -> bool:
    """Whether every group can be marked, which is the best choice when it is possible."""
    used = np.ones(len(above), np.int64)
    for j in range(len(above)):
        if above[j] >= 0:
            used[j] += used[above[j]] if joined[j] else 1
    return len(used) == 0 or used.max() <= limit


@compiled
def _choose(forest: _Forest, limit: int) -> Bools:
    """The dynamic program; O(groups x ancestors x limit) time and space.

    A group has one row of the table for each place where the next mark above it may be: nowhere
    (0), at its ancestors from the top (1, 2, ...), and last at the group itself, for its children.
    best[row, b]: the most that can be saved below the group with b marks left; after the group has
    been processed, including the group.
    """
    level, first = _rows(forest.above)
    best = np.zeros((first[-1], limit + 1))
    take = np.zeros((first[-1], limit + 1), np.bool_)
    for j in range(len(level) - 1, -1, -1):
        own, ancestor = first[j] + level[j] + 1, forest.above[j]
        for place in range(level[j], -1, -1):
            row = first[j] + place
            shared = forest.position[ancestor] if place else 0
            gain = (forest.position[j] - shared) * forest.gain[j]
            for b in range(limit, 0, -1):
                take[row, b] = gain + best[own, b - 1] > best[row, b]
                best[row, b] = max(best[row, b], gain + best[own, b - 1])
            if forest.above[j] >= 0:
                for b in range(limit + 1):
                    left = b if forest.joined[j] else limit - (place > 0)
                    best[first[forest.above[j]] + place, b] += best[row, left]
            ancestor = forest.above[ancestor] if place else ancestor
    return _follow(forest, level, first, take)


@compiled
def _rows(above: Int64s) -> tuple[Int64s, Int64s]:
    """(number of ancestors of each group in the forest, where its rows begin)."""
    level, first = np.zeros(len(above), np.int64), np.zeros(len(above) + 1, np.int64)
    for j in range(len(above)):
        level[j] = level[above[j]] + 1 if above[j] >= 0 else 0
        first[j + 1] = first[j] + level[j] + 2
    return level, first


@compiled
def _follow(forest: _Forest, level: Int64s, first: Int64s, take: Bools) -> Bools:
    """Read the best choice off the table, from the top down."""
    limit = take.shape[1] - 1
    marked = np.zeros(len(level), np.bool_)
    place, left = np.zeros(len(level), np.int64), np.zeros(len(level), np.int64)
    for j in range(len(level)):
        here, b = 0, limit
        if forest.above[j] >= 0:
            here = place[forest.above[j]]
            b = left[forest.above[j]] if forest.joined[j] else limit - (here > 0)
        marked[j] = take[first[j] + here, b]
        place[j] = level[j] + 1 if marked[j] else here
        left[j] = b - 1 if marked[j] else b
    return marked


@compiled
def _marked_above(forest: _Forest, marked: Bools) -> Int64s:
    """Per group, the position of the next mark above it, or 0."""
    positions = np.zeros(len(marked), np.int64)
    for j in range(len(marked)):
        above = forest.above[j]
        if above >= 0:
            positions[j] = forest.position[above] if marked[above] else positions[above]
    return positions


@compiled
def _paths(forest: _Forest, marked: Bools, bottom: Int64s, limit: int) -> tuple[Int64s, Int64s]:
    """(marks of all requests, end of each request's marks): the `limit` deepest, ascending.

    The prefixes that a request must write are its deepest ones. So these marks include them and
    the prefix that it reads.
    """
    ends = np.zeros(len(bottom), np.int64)
    positions = np.zeros(len(bottom) * limit, np.int64)
    total = 0
    for i in range(len(bottom)):
        node, start = bottom[i], total
        while node >= 0 and total - start < limit:
            if marked[node]:
                positions[total] = forest.position[node]
                total += 1
            node = forest.above[node]
        positions[start:total] = positions[start:total][::-1].copy()
        ends[i] = total
    return positions[:total].copy(), ends
