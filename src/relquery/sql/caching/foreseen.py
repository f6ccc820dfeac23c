"""What each prompt is expected to read from a provider's cache, for the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np

from relquery.arrays import Bools, Int64s
from relquery.backends.base import Backend
from relquery.ledger.caching.expected import Expected, Foreseen, Plan, Why
from relquery.ledger.keys import prompt_hash
from relquery.prices.table import known_price
from relquery.prompt import Prompt
from relquery.sql.caching.plan import CachePlan, alike
from relquery.table.cost.blocks import Blocks
from relquery.table.prompts.waves import Sharing


def foreseen(
    prompts: Sequence[Prompt], plan: CachePlan | None, backend: Backend, *, is_pinned: bool
) -> Foreseen | None:
    """What is expected of prompts, by their places in the order sent; None where nothing is cached
    by a provider.

    plan: as `planned` gives it. is_pinned: whether fields are in an order that is not chosen.
    """
    if plan is not None and len(prompts) > 1:
        return _Planned.of(prompts, plan, is_pinned=is_pinned)
    why: Why
    if backend.price_share < 1:
        why = "batch"
    elif backend.concurrency is None:
        return None
    else:
        why = "unpriced" if known_price(backend.name) is None else "alone"
    none = Plan(uuid4().bytes)
    return lambda place: Expected(none, place, why)


@dataclass(frozen=True, slots=True, eq=False)
class _Planned:
    """Arrays are by the prompts' places in the order given, all (n,).

    source: the prompt that writes what each reads, or -1. last: the block with which that ends, or
    what others read of it, or -1. rank: places in the order sent.
    """

    prompts: Sequence[Prompt]
    plan: CachePlan
    rules: Plan
    source: Int64s
    last: Int64s
    shared: Int64s
    could_share: Bools
    rank: Int64s
    hashes: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, prompts: Sequence[Prompt], plan: CachePlan, *, is_pinned: bool) -> _Planned:
        count, price = len(prompts), plan.price
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
        source, last = np.full(count, -1), np.full(count, -1)
        if plan.sharing is not None:
            source, last = _read_and_written(plan.sharing)
        sizes = alike(plan.blocks)
        shared = np.where(sizes > 1, plan.blocks.ends, 0).max(axis=1, initial=0)
        could = np.zeros(count, bool)
        if is_pinned:
            could = _reached_in_another_order(plan.blocks) >= price.minimum
        rank = np.empty(count, np.int64)
        rank[plan.order] = np.arange(count)
        return cls(prompts, plan, rules, source, last, shared, could, rank)

    def __call__(self, place: int) -> Expected:
        at = int(self.plan.order[place])
        writer, last, shared = int(self.source[at]), int(self.last[at]), int(self.shared[at])
        counted = int(self.plan.blocks.sizes[self.plan.blocks.ids[at]].sum())
        if last < 0:
            return Expected(self.rules, place, self._why_not(at), 0, shared, counted)
        prefix = self._hash(at if writer < 0 else writer, last)
        if writer < 0:
            return Expected(self.rules, place, "writes", 0, shared, counted, prefix=prefix)
        tokens = int(self.plan.blocks.ends[at, last])
        wrote = int(self.rank[writer])
        return Expected(self.rules, place, "reads", tokens, shared, counted, wrote, prefix)

    def _why_not(self, at: int) -> Why:
        if self.shared[at] >= self.plan.price.minimum:
            return "little"
        return "pinned" if self.could_share[at] else "below"

    def _hash(self, at: int, last: int) -> bytes:
        key = at, last
        if key not in self.hashes:
            self.hashes[key] = prompt_hash(self.prompts[at][: last + 1])
        return self.hashes[key]


def _read_and_written(sharing: Sharing) -> tuple[Int64s, Int64s]:
    """See `source` and `last` of _Planned."""
    first, cached, _ = sharing
    count, width = first.shape
    own = np.arange(count)
    reads = cached & (first < own[:, None])
    writes = np.zeros_like(reads)
    for at in range(width):
        writes[first[reads[:, at], at], at] = True
    last = np.where(reads.any(axis=1), _last(reads), _last(writes))
    source = np.where(reads.any(axis=1), first[own, last], -1)
    return source, last


def _last(marked: Bools) -> Int64s:
    """(n,), the last place that is marked in each row, or -1."""
    if not marked.shape[1]:
        return np.full(len(marked), -1)
    last = marked.shape[1] - 1 - marked[:, ::-1].argmax(axis=1)
    return np.where(marked.any(axis=1), last, -1)


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
