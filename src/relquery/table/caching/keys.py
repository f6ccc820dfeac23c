"""Keys that send requests with a common prefix to the same machine, and not too many to one.

OpenAI chooses the machine by the first tokens of a prompt and by `prompt_cache_key`. Beyond about
15 requests a minute for one such pair, requests overflow to machines that have not seen the prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from math import ceil

import numpy as np

from relquery.table.cost.blocks import Blocks
from relquery.table.cost.price import Price


def cache_keys(
    blocks: Blocks, texts: Sequence[tuple[object, ...]], price: Price, rate: float | None
) -> list[str]:
    """A key for each request; empty for one that shares no prefix that is long enough.

    texts: what each block is; equal prefixes have equal keys in every run. rate: requests a minute;
    None for slow enough.

    If a group sends more than the limit, its requests are dealt to several keys. Those that share
    more stay together.
    """
    ids, ends = blocks.ids, blocks.ends
    if price.requests_per_minute is None or not ids.size:
        return [""] * len(ids)
    limit = max(1, int(price.requests_per_minute))
    long = ends >= max(price.minimum, 1)
    heads = np.where(long.any(axis=1), long.argmax(axis=1) + 1, 0)
    groups: dict[tuple[int, ...], list[int]] = {}
    for at, (row, head) in enumerate(zip(ids.tolist(), heads.tolist(), strict=True)):
        if head:
            groups.setdefault(tuple(row[:head]), []).append(at)
    keys = [""] * len(ids)
    for head, members in groups.items():
        if len(members) == 1:
            continue
        name = _name([texts[number] for number in head])
        busiest = len(members) if rate is None else min(len(members), rate)
        lanes = 1 if rate is None else ceil(busiest / limit)
        for number, bundle in enumerate(_bundles(ids[members].tolist(), len(head), limit)):
            for place in bundle:
                keys[members[place]] = f"{name}-{number % lanes}"
    return keys


def _bundles(rows: Sequence[Sequence[int]], head: int, most: int) -> Iterator[list[int]]:
    """Places of neighbours that share a block after the first `head`, at most so many together."""
    bundle: list[int] = []
    for place, row in enumerate(rows):
        is_alike = bundle and row[head : head + 1] == rows[bundle[-1]][head : head + 1]
        if bundle and (not is_alike or len(bundle) == most):
            yield bundle
            bundle = []
        bundle.append(place)
    yield bundle


def _name(texts: Sequence[tuple[object, ...]]) -> str:
    return f"relquery-{blake2b(repr(texts).encode(), digest_size=8).hexdigest()}"
