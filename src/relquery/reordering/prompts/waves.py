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

from relquery import _native
from relquery.arrays import Bools, Int64s
from relquery.errors import ConfigError
from relquery.prices.price import Price
from relquery.reordering.cost.billing import Blocks, Marks, prefixes_of
from relquery.reordering.cost.measure import Fields
from relquery.reordering.prompts.prompts import Prompts, TableSource, Template, blocks_of, prompts


class Sharing(NamedTuple):
    """The prefixes of blocks that requests share.

    first: (n, k), the first request, by its place in the order, that has the same blocks up to this
    one. cached: (n, k), whether the prefix up to this block is cached. ends: (n, k), tokens up to
    the end of the block.
    """

    first: Int64s
    cached: Bools
    ends: Int64s


def in_waves(
    source: TableSource,
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
    waves = arrange(share(blocks_of(source, template, rows, fields), minimum, marks), most)
    count = int(waves.max()) + 1 if len(waves) else 1
    return sent, [sent.part(np.flatnonzero(waves == wave)) for wave in range(count)]


def share(blocks: Blocks, minimum: int, marks: Marks | None) -> Sharing:
    """Find what requests share. minimum: tokens of the shortest prefix that is worth a wave.

    marks: the prefixes that each request marks, in tokens; None: an automatic cache keeps all.
    """
    first = prefixes_of(blocks)
    ends = blocks.ends
    cached = ends >= max(minimum, 1)
    if marks is not None:
        cached &= _marked(ends, marks)
    return Sharing(first, cached, ends)


def writers(sharing: Sharing) -> Int64s:
    """(n,), the earlier request that wrote the longest prefix which this one reads, or -1."""
    return _native.writers(*sharing)


def arrange(sharing: Sharing, most: int | None) -> Int64s:
    """(n,), the wave of each request, from 0.

    most: the highest number of waves. None: the fewest that read 99% of what is read one by one.
    """
    return _native.arrange(*sharing, most or 0)


def served(sharing: Sharing, waves: Int64s) -> int:
    """Tokens read from the cache if the requests of a wave are sent together.

    waves: (n,), the wave of each request.
    """
    return _native.served(*sharing, waves)


def _marked(ends: Int64s, marks: Marks) -> Bools:
    """(n, k), whether the request marks its prefix up to this block."""
    marked = np.zeros(ends.shape, np.bool_)
    for row, own in enumerate(marks):
        if own:
            marked[row, np.searchsorted(ends[row], own)] = True
    return marked
