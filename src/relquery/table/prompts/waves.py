"""Waves: the first request of each group that shares a prefix, then the others.

A provider can read a prefix from its cache once it has begun to respond to the request that wrote
the prefix. Requests that are sent together cannot read each other's prefixes. So a request is sent
in a wave after the one that writes the prefix it reads:

    level(i) = 1 + level(first request of the longest prefix that i shares with an earlier one)

and 0 for a request that shares none. If fewer waves are allowed, some requests are sent together
with the one whose prefix they would read. They miss that prefix, and read a shorter one that was
written in an earlier wave. A dynamic program over the tree of who reads from whom decides which
requests these are, so that the fewest tokens are lost. Its state is the wave of a request, and the
level of the first request on its path that is in this wave: anything written above that one can be
read.
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

ENOUGH = 0.99  # share of the tokens that are read if requests are sent one after the other


class Sharing(NamedTuple):
    """Which prefixes of blocks the requests share.

    first: (n, k), the first request, by its place in the order, that has the same blocks up to this
    one. cached: (n, k), whether the prefix up to this block is cached. ends: (n, k), tokens up to
    the end of the block.
    """

    first: Int64s
    cached: Bools
    ends: Int64s


class Readings(NamedTuple):
    """Who reads from whom if requests are sent one after the other.

    source: (n,), the request that wrote what this one reads, or -1. level: (n,), how many requests
    it has to wait for, one after the other. number: (n,), a number for each request that others
    read from, or -1.
    """

    source: Int64s
    level: Int64s
    number: Int64s


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
            raise ConfigError(
                f"{name} is {value!r}; it must be a whole number of at least {least}."
            )
    sent = prompts(replace(source, requests_per_minute=None), template, rows, fields, price)
    if minimum is None:
        minimum = 0 if price is None else price.minimum
    marks = None if sent.bill is None else sent.bill.breakpoints
    with source.loops():
        waves = arrange(share(blocks_of(source, template, rows, fields), minimum, marks), most)
    count = int(waves.max()) + 1 if len(waves) else 1
    return sent, [sent.part(np.flatnonzero(waves == wave)) for wave in range(count)]


def share(blocks: Blocks, minimum: int, marks: Marks | None) -> Sharing:
    """Find what requests share. minimum: tokens of the shortest prefix that is worth a wave.

    marks: the prefixes that each request marks, in tokens; None: an automatic cache keeps all.
    """
    first = _first(blocks)
    ends = blocks.ends
    cached = ends >= max(minimum, 1)
    if marks is not None:
        cached &= _marked(ends, marks)
    return Sharing(first, cached, ends)


def arrange(sharing: Sharing, most: int | None) -> Int64s:
    """(n,), the wave of each request, from 0.

    most: the highest number of waves. None: the fewest that read ENOUGH.
    """
    one_by_one = readings(sharing)
    levels = one_by_one.level
    needed = int(levels.max()) + 1 if len(levels) else 1
    if most is not None:
        return _in_waves(sharing, one_by_one, min(most, needed))
    goal = ENOUGH * served(sharing, levels)
    for waves in range(1, needed):
        found = _in_waves(sharing, one_by_one, waves)
        if served(sharing, found) >= goal:
            return found
    return levels


def readings(sharing: Sharing) -> Readings:
    """Who reads from whom if requests are sent one after the other."""
    return Readings(*_read_one_by_one(sharing))


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
def _read_one_by_one(sharing: Sharing) -> tuple[Int64s, Int64s, Int64s]:
    """See Readings."""
    count, width = sharing.first.shape
    level, source = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    number, numbered = np.full(count, -1, np.int64), 0
    for i in range(count):
        for k in range(width):
            if sharing.cached[i, k] and sharing.first[i, k] < i:
                source[i] = sharing.first[i, k]
        above = source[i]
        if above >= 0:
            level[i] = level[above] + 1
            if number[above] < 0:
                number[above] = numbered
                numbered += 1
    return source, level, number


def _in_waves(sharing: Sharing, readings: Readings, waves: int) -> Int64s:
    """The best arrangement in so many waves. waves: at most the number of levels."""
    if waves == 1:
        return np.zeros_like(readings.level)
    deepest = int(readings.level.max())
    best = np.zeros((int(readings.number.max()) + 1, waves, deepest + 1), np.int64)
    _weigh(sharing, readings, best)
    return _follow(sharing, readings, best)


@compiled
def _written_above(sharing: Sharing, level: Int64s, i: int, tokens: Int64s) -> None:
    """Set tokens[l], for each l up to its level, to what it reads of requests of levels below l."""
    tokens[: level[i] + 1] = 0
    for k in range(sharing.first.shape[1]):
        if sharing.cached[i, k] and sharing.first[i, k] < i:
            tokens[level[sharing.first[i, k]] + 1] = sharing.ends[i, k]
    for above in range(level[i]):
        tokens[above + 1] = max(tokens[above + 1], tokens[above])


@compiled
def _weigh(sharing: Sharing, readings: Readings, best: Int64s) -> None:
    """Fill the table: best[number, w, l] is the most tokens that those below a request read.

    w: its wave. l: the level of the first request on its path that is in this wave.
    """
    level, waves = readings.level, best.shape[1]
    tokens = np.zeros(best.shape[2], np.int64)
    for i in range(len(level) - 1, -1, -1):
        above, own = readings.source[i], readings.number[i]
        if above < 0:
            continue
        _written_above(sharing, level, i, tokens)
        for wave in range(waves):
            later = 0
            if wave + 1 < waves:
                later = tokens[level[i]] + (best[own, wave + 1, level[i]] if own >= 0 else 0)
            for begun in range(level[above] + 1):
                together = tokens[begun] + (best[own, wave, begun] if own >= 0 else 0)
                best[readings.number[above], wave, begun] += max(together, later)


@compiled
def _follow(sharing: Sharing, readings: Readings, best: Int64s) -> Int64s:
    """Read the best choice off the table, from the top down."""
    level, last = readings.level, best.shape[1] - 1
    tokens = np.zeros(best.shape[2], np.int64)
    waves, begun = np.zeros(len(level), np.int64), np.zeros(len(level), np.int64)
    for i in range(len(level)):
        above, own = readings.source[i], readings.number[i]
        if above < 0:
            continue
        _written_above(sharing, level, i, tokens)
        wave, since = waves[above], begun[above]
        together, later = tokens[since], np.int64(0)
        if own >= 0:
            together += best[own, wave, since]
        if wave < last:
            later = tokens[level[i]] + (best[own, wave + 1, level[i]] if own >= 0 else 0)
        is_later = later > together
        waves[i], begun[i] = wave + is_later, level[i] if is_later else since
    return waves


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
