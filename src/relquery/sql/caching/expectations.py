"""What each prompt is expected to read from a provider's cache, for the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from uuid import uuid4

import numpy as np

from relquery.arrays import Bools, Int64s
from relquery.backends.base import Backend
from relquery.ledger.facts import Expected, Foreseen, Plan, Why
from relquery.ledger.keys import prompt_hash
from relquery.prices.table import known_price
from relquery.prompt import Prompt
from relquery.reordering.cost.billing import Blocks
from relquery.reordering.prompts.waves import Sharing
from relquery.sql.caching.plan import CachePlan, alike


def expectations(
    prompts: Sequence[Prompt], plan: CachePlan | None, backend: Backend, *, is_pinned: bool
) -> Foreseen | None:
    """What is expected of prompts, by their places in the order sent; None where nothing is cached
    by a provider.

    plan: as `planned` gives it. is_pinned: whether fields are in an order that is not chosen.
    """
    if plan is not None and len(prompts) > 1:
        return _of_plan(prompts, plan, is_pinned=is_pinned)
    why: Why
    if backend.limits.price_share < 1:
        why = "batch"
    elif backend.limits.concurrency is None:
        return None
    else:
        why = "unpriced" if known_price(backend.name) is None else "alone"
    none = Plan(uuid4().bytes)
    return lambda place: Expected(none, place, why)


def _of_plan(prompts: Sequence[Prompt], plan: CachePlan, *, is_pinned: bool) -> Foreseen:
    """The same where the rules of the cache are known. Arrays are by the order given, all (n,)."""
    price, blocks = plan.price, plan.blocks
    rules = Plan(
        uuid4().bytes,
        price.minimum,
        price.granularity,
        price.breakpoints > 0,
        plan.keep_for or price.lifetime_s,
        price.uncached,
        price.write,
        price.read,
    )
    source = last = np.full(len(prompts), -1)
    if plan.sharing is not None:
        source, last = _read_and_written(plan.sharing)
    shared = np.where(alike(blocks) > 1, blocks.ends, 0).max(axis=1, initial=0)
    reached = _reached_in_another_order(blocks) if is_pinned else np.full(len(prompts), -1)
    places = np.argsort(plan.order)
    hashed = cache(lambda at, end: prompt_hash(prompts[at][:end]))

    def expected(place: int) -> Expected:
        at = int(plan.order[place])
        writer, end, common = int(source[at]), int(last[at]) + 1, int(shared[at])
        counted = int(blocks.sizes[blocks.ids[at]].sum())
        if end > 0:
            prefix = hashed(at if writer < 0 else writer, end)
            if writer < 0:
                return Expected(rules, place, "writes", 0, common, counted, prefix=prefix)
            tokens, wrote = int(blocks.ends[at, end - 1]), int(places[writer])
            return Expected(rules, place, "reads", tokens, common, counted, wrote, prefix)
        why: Why = "pinned" if reached[at] >= price.minimum else "below"
        if common >= price.minimum:
            why = "little"
        return Expected(rules, place, why, 0, common, counted)

    return expected


def _read_and_written(sharing: Sharing) -> tuple[Int64s, Int64s]:
    """(the prompt that writes what each reads, or -1; the block with which that ends, or what
    others read of it, or -1)."""
    first, cached, _ = sharing
    count, width = first.shape
    own = np.arange(count)
    reads = cached & (first < own[:, None])
    writes = np.zeros_like(reads)
    for at in range(width):
        writes[first[reads[:, at], at], at] = True
    last = np.where(reads.any(axis=1), _last(reads), _last(writes))
    return np.where(reads.any(axis=1), first[own, last], -1), last


def _last(marked: Bools) -> Int64s:
    """(n,), the last place that is marked in each row, or -1."""
    last: Int64s = np.where(marked, np.arange(marked.shape[1]), -1).max(axis=1, initial=-1)
    return last


def _reached_in_another_order(blocks: Blocks) -> Int64s:
    """(n,), tokens of a prefix that each prompt would share with another, if one of its blocks came
    right after what all prompts have in common.

    What all end with stays at the end.
    """
    ids, sizes = blocks.ids, blocks.sizes[blocks.ids]
    is_same = (ids == ids[:1]).all(axis=0)
    movable = np.flatnonzero(~is_same)
    if not len(movable):
        return blocks.ends[:, -1] if ids.shape[1] else np.zeros(len(ids), np.int64)
    most = np.zeros(len(ids), np.int64)
    for at in movable:
        _, number, counts = np.unique(ids[:, at], return_inverse=True, return_counts=True)
        most = np.maximum(most, np.where(counts[number] > 1, sizes[:, at], 0))
    common = sizes[:, : movable[-1] + 1][:, is_same[: movable[-1] + 1]].sum(axis=1)
    found: Int64s = common + most
    return found
