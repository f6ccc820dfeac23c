"""Waves: the first request of each group that shares a prefix, then the others.

A provider can read a prefix from its cache once the response to the request that wrote it has
begun. Requests that are sent together miss each other's prefixes. So each is sent in a wave after
the one that writes the prefix it reads:

    level(i) = 1 + level(first request of the longest prefix that i shares with an earlier one)

and 0 for a request that shares none. If there may only be fewer waves, requests that write what
others read are sent together over several levels, and miss what they would read of each other. A
dynamic program over the levels chooses those that lose least. Requests that only read lose nothing:
they still come after what they read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int64s
from relquery.errors import ConfigError
from relquery.table.compiled import compiled
from relquery.table.cost.billing import Marks
from relquery.table.cost.blocks import Blocks
from relquery.table.cost.price import Price
from relquery.table.measure import Fields
from relquery.table.prompts.marks import blocks_of, prompts
from relquery.table.prompts.prompts import Prompts
from relquery.table.prompts.source import Source
from relquery.table.prompts.template import Template

ENOUGH = 0.99  # of the tokens that are read if requests are sent one after the other


class Sharing(NamedTuple):
    """Which prefixes of blocks the requests share.

    first: (n, k), the first request, by its place in the order, that begins with the same blocks up
    to this one. cached: (n, k), whether the request has its prefix up to this block cached. ends:
    (n, k), tokens up to the end of the block.
    """

    first: Int64s
    cached: Bools
    ends: Int64s


def in_waves(
    source: Source,
    template: Template,
    rows: Int64s,
    fields: Fields,
    price: Price | None,
    most: int | None = None,
    minimum: int | None = None,
) -> tuple[Prompts, list[Prompts]]:
    """(all prompts, those of each wave). See Schedule.waves; raises ConfigError."""
    for name, value, least in (("waves", most, 1), ("minimum", minimum, 0)):
        if value is not None and not (isinstance(value, int) and value >= least):
            raise ConfigError(f"{name} is {value!r}; it must be a whole number from {least}.")
    sent = prompts(replace(source, requests_per_minute=None), template, rows, fields, price)
    if minimum is None:
        minimum = 0 if price is None else price.minimum
    marks = None if sent.bill is None else sent.bill.breakpoints
    waves = arrange(share(blocks_of(source, template, rows, fields), minimum, marks), most)
    count = int(waves.max()) + 1 if len(waves) else 1
    return sent, [sent.part(np.flatnonzero(waves == wave)) for wave in range(count)]


def share(blocks: Blocks, minimum: int, marks: Marks | None) -> Sharing:
    """What requests share. minimum: tokens of the shortest prefix that is worth a wave.

    marks: the prefixes that each request marks, in tokens; None: an automatic cache has them all.
    """
    first = _first(blocks)
    ends = blocks.ends
    cached = ends >= max(minimum, 1)
    if marks is not None:
        cached &= _marked(ends, marks)
    return Sharing(first, cached, ends)


def arrange(sharing: Sharing, most: int | None) -> Int64s:
    """(n,), the wave of each request, from 0.

    most: the most waves. None: as few as read ENOUGH.
    """
    levels, reads = _levels(sharing)
    writes = np.zeros(len(levels), np.bool_)
    writes[reads[reads >= 0]] = True
    needed = int(levels.max()) + 1 if len(levels) else 1
    if most is not None:
        return _in_waves(sharing, levels, reads, writes, min(most, needed))
    goal = ENOUGH * served(sharing, levels)
    for waves in range(1, needed):
        found = _in_waves(sharing, levels, reads, writes, waves)
        if served(sharing, found) >= goal:
            return found
    return levels


def served(sharing: Sharing, waves: Int64s) -> int:
    """Tokens read from the cache if the requests of a wave are sent together.

    waves: (n,), the wave of each request.
    """
    return int(_served(sharing, waves))


def _first(blocks: Blocks) -> Int64s:
    """See Sharing."""
    ids = blocks.ids
    count, width = ids.shape
    first = np.zeros((count, width), np.int64)
    group = np.zeros(count, np.int64)
    for column in range(width):
        keys = group * len(blocks.sizes) + ids[:, column]
        _, places, group = np.unique(keys, return_index=True, return_inverse=True)
        first[:, column] = places[group]
    return first


def _marked(ends: Int64s, marks: Marks) -> Bools:
    """(n, k), whether the request marks its prefix up to this block."""
    marked = np.zeros(ends.shape, np.bool_)
    for row, own in enumerate(marks):
        if own:
            marked[row, np.searchsorted(ends[row], own)] = True
    return marked


@compiled
def _levels(sharing: Sharing) -> tuple[Int64s, Int64s]:
    """(level of each request, the request that writes what it reads, or -1)."""
    count, width = sharing.first.shape
    levels, reads = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    for i in range(count):
        for k in range(width):
            if sharing.cached[i, k] and sharing.first[i, k] < i:
                reads[i] = sharing.first[i, k]
        if reads[i] >= 0:
            levels[i] = levels[reads[i]] + 1
    return levels, reads


def _in_waves(sharing: Sharing, levels: Int64s, reads: Int64s, writes: Bools, waves: int) -> Int64s:
    """Levels brought down to some number of waves, at most as many as there are levels."""
    if waves == 1:
        return np.zeros_like(levels)
    at = _merged(_reads_of_writers(sharing, levels, writes), waves - 1)[levels]
    readers = ~writes & (reads >= 0)
    at[readers] = at[reads[readers]] + 1
    at[~writes & (reads < 0)] = 0
    return at


@compiled
def _reads_of_writers(sharing: Sharing, levels: Int64s, writes: Bools) -> Int64s:
    """(levels, levels): at [a, b] what writers of level b read of levels below a, in tokens."""
    count, width = sharing.first.shape
    deepest = levels.max() + 1
    total = np.zeros((deepest, deepest), np.int64)
    for i in range(count):
        if not writes[i]:
            continue
        below = np.zeros(deepest, np.int64)  # by the level from which on it is available
        for k in range(width):
            if sharing.cached[i, k] and sharing.first[i, k] < i:
                below[levels[sharing.first[i, k]] + 1] = sharing.ends[i, k]
        best = 0
        for a in range(levels[i] + 1):
            best = max(best, below[a])
            total[a, levels[i]] += best
    return total


def _merged(reads: Int64s, most: int) -> Int64s:
    """(levels,), the wave of the writers of each level: at most `most` waves that read the most."""
    count = len(reads)
    from_level = [np.cumsum(row[a:]) for a, row in enumerate(reads)]
    best = [from_level[0]] + [np.zeros(count, np.int64) for _ in range(most - 1)]
    begins = np.zeros((most, count), np.int64)
    for wave in range(1, most):
        for last in range(count):
            read = [best[wave - 1][a - 1] + from_level[a][last - a] for a in range(1, last + 1)]
            chosen = int(np.argmax([best[wave - 1][last], *read]))
            begins[wave, last] = chosen
            best[wave][last] = read[chosen - 1] if chosen else best[wave - 1][last]
    cuts, last = [], count - 1
    for wave in range(most - 1, 0, -1):
        if begins[wave, last]:
            cuts.append(int(begins[wave, last]))
            last = cuts[-1] - 1
    return np.searchsorted(sorted(cuts), np.arange(count), side="right")


@compiled
def _served(sharing: Sharing, waves: Int64s) -> int:
    total = 0
    count, width = sharing.first.shape
    for i in range(count):
        read = 0
        for k in range(width):
            if sharing.cached[i, k] and waves[sharing.first[i, k]] < waves[i]:
                read = sharing.ends[i, k]
        total += read
    return total
