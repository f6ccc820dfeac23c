"""Which prefixes the requests of a call mark, for how long, and which requests wait for which.

A request can read a prefix once the provider has begun to answer the one that writes it. Requests
that are sent together all write. So each request names the one that it waits for; with enough other
requests to send meanwhile, nobody stands idle. A batch, whose requests are all sent at once, goes
in waves instead (`CachePlan.waves`).

How long a prefix is kept is the same for all requests of a call. In a good order the requests of a
group follow one another, so all prefixes are used again after about the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from relquery.arrays import Int64s
from relquery.prompt import Prompt
from relquery.table.caching.blocks import NotPlain, blocks_of
from relquery.table.caching.keys import cache_keys
from relquery.table.compiled import interpreted
from relquery.table.cost.billing import Bill, Marks, bill
from relquery.table.cost.blocks import Blocks
from relquery.table.cost.price import Price, hourly
from relquery.table.cost.tokens import Encode
from relquery.table.prompts.source import FEW_CELLS
from relquery.table.prompts.waves import Sharing, arrange, readings, share

LENIENT = 0.8
"""Prefixes are marked, and waited for, from so much of the provider's minimum on.

We only estimate its tokens. A mark below the minimum is ignored and costs nothing, and one that is
missing costs what its group would have read.
"""


WORTH = 0.01
"""The least share of the bill that an order has to save. Another order of fields changes how many
tokens the same texts have by some tenths of a percent.
"""


@dataclass(frozen=True, slots=True, eq=False)
class CachePlan:
    """How the prompts of one call are sent, by their place in the order.

    marks: after how many spans each prefix to be cached ends, ascending; none for an automatic
        cache. seconds: how long a marked prefix lives after its last use.
    after: (n,), the request whose answer must have begun, or -1. It always comes earlier.
    keys: `prompt_cache_key` of each request, empty for none; only for automatic caches.
    bill: what is expected if each request waits for the one it reads from. None if the prompts
        have spans that no provider takes; nothing is marked then.
    """

    marks: Marks
    seconds: float
    after: Int64s
    keys: Sequence[str]
    bill: Bill | None
    sharing: Sharing | None

    @property
    def pays(self) -> bool:
        """Whether these prompts save anything; if not, they are better sent as written."""
        return self.bill is not None and self.bill.savings > WORTH

    def mark(self, at: int, prompt: Prompt) -> Prompt:
        """The prompt with its marks: a span with `keep` ends a prefix to be cached."""
        return mark(prompt, self.marks[at], self.seconds)

    def waves(self, most: int | None = None) -> Int64s:
        """(n,), the wave of each request, from 0: each is sent when the one before is answered.

        most: the highest number of waves; None: the fewest that lose little.
        """
        if self.sharing is None:
            return np.zeros(len(self.marks), np.int64)
        return arrange(self.sharing, most)


def mark(prompt: Prompt, ends: Iterable[int], seconds: float) -> Prompt:
    """A prompt whose prefixes of so many spans are to be kept so long after their last use."""
    kept = set(ends)
    if not kept:
        return prompt
    return tuple(
        replace(span, keep=1, keep_for=seconds) if at in kept else span
        for at, span in enumerate(prompt, start=1)
    )


def plan_caching(
    prompts: Sequence[Prompt],
    price: Price,
    encode: Encode,
    *,
    requests_per_minute: float | None = None,
) -> CachePlan:
    """The cheapest way to send some prompts in this order.

    encode: token ids of texts; an estimate is enough. Whatever the provider counts, marks never
    cost more than none: each marked prefix is read by as many requests as pay for writing it.
    requests_per_minute: how fast they are sent; None if nothing expires meanwhile.

    Raises ConfigError if it is not above 0.
    """
    try:
        blocks, texts = blocks_of(prompts, encode)
    except NotPlain:
        nobody = np.full(len(prompts), -1, np.int64)
        return CachePlan([()] * len(prompts), inf, nobody, [""] * len(prompts), None, None)
    few = blocks.ids.size <= FEW_CELLS
    with interpreted() if few else nullcontext():
        if price.breakpoints:
            return _marked(blocks, price, requests_per_minute)
        return _automatic(blocks, texts, price, requests_per_minute)


def _marked(blocks: Blocks, price: Price, rate: float | None) -> CachePlan:
    bills = [bill(blocks, each, requests_per_minute=rate) for each in lifetimes(price)]
    best = min(bills, key=lambda each: each.usd)
    wide = bill(blocks, _lenient(best.price), requests_per_minute=rate).breakpoints
    sharing = share(blocks, _lenient(price).minimum, wide)
    seconds = inf if best.price.lifetime_s is None else best.price.lifetime_s
    marks = _in_spans(wide, blocks)
    none = [""] * len(marks)
    return CachePlan(marks, seconds, readings(sharing).source, none, best, sharing)


def _automatic(
    blocks: Blocks, texts: Sequence[tuple[object, ...]], price: Price, rate: float | None
) -> CachePlan:
    """Nothing is marked; a prefix that ends inside a block is left out of account."""
    wide = _lenient(price)
    keys = cache_keys(blocks, texts, wide, rate)
    sharing = share(_apart(blocks, keys), wide.minimum, None)
    nothing: Marks = [()] * len(keys)
    read = _read(share(blocks, price.minimum, None), price)
    expected = Bill(price, blocks.total - read, 0, read, nothing)
    return CachePlan(nothing, inf, readings(sharing).source, keys, expected, sharing)


def _apart(blocks: Blocks, keys: Sequence[str]) -> Blocks:
    """The blocks with the key as the first of them: other keys are other machines."""
    numbers = {key: len(blocks.sizes) + at for at, key in enumerate(dict.fromkeys(keys))}
    first = np.array([[numbers[key]] for key in keys], np.int32).reshape(len(keys), 1)
    none = np.zeros(len(numbers), np.int64)
    return Blocks(np.hstack([first, blocks.ids]), np.concatenate([blocks.sizes, none]))


def _read(sharing: Sharing, price: Price) -> int:
    """Tokens that an automatic cache serves if requests are sent one after the other."""
    ends = sharing.ends
    repeated = sharing.first < np.arange(len(ends))[:, None]
    hits = np.where(sharing.cached & repeated, ends, 0).max(axis=1, initial=0)
    steps = (hits - price.minimum) // price.granularity * price.granularity
    return int(np.where(hits < max(price.minimum, 1), 0, price.minimum + steps).sum())


def _lenient(price: Price) -> Price:
    return replace(price, minimum=int(LENIENT * price.minimum))


def lifetimes(price: Price) -> tuple[Price, ...]:
    """The price, and that of entries that live for an hour, which Anthropic alone has."""
    return (price, hourly(price)) if price.name.startswith("claude") else (price,)


def _in_spans(marks: Marks, blocks: Blocks) -> Marks:
    """Breakpoints in spans. marks: in tokens."""
    ends = blocks.ends
    return [
        tuple((np.searchsorted(row, own) + 1).tolist()) if own else ()
        for row, own in zip(ends, marks, strict=True)
    ]
