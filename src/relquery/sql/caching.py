"""Plans of what a provider caches of a stage's prompts, and the order in which they are sent.

Where a provider takes breakpoints, the prompts mark the prefixes that pay: spans of such prompts
have `keep`, as those that a client of Anthropic's API marks. The order lets the first request of
each group be answered before the others read what it wrote.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import NamedTuple

import numpy as np

from relquery.arrays import Int32s, Int64s
from relquery.backends.base import Backend
from relquery.config import Order
from relquery.lazy import LazySequence
from relquery.prices.price import Price
from relquery.prices.table import known_price
from relquery.prompt import Prompt
from relquery.reordering.cost.billing import Bill, Blocks, Marks, bill, prefixes_of
from relquery.reordering.cost.tokens import Encode, EstimatedTokens, Tokens
from relquery.reordering.prompts.waves import served, share, writers
from relquery.reordering.schedule import Schedule
from relquery.sql.inputs.inputs import Inputs


def together(blocks: Blocks, minimum: int, most: float | None) -> Int64s:
    """(n,), after how many blocks the prefix ends whose prompts go to one machine; 0 for none.

    minimum: tokens of the shortest prefix that is worth it. most: requests a minute that stay on
    one machine; None for any number.

    A machine reads nothing for the first request that it gets, and others take over once it has had
    its requests of a minute. So of n requests that share a prefix, about 1 / n and 1 / most read
    nothing. Each prompt takes the prefix of which it then reads the most: a shorter one is shared
    by more prompts, of which more go elsewhere. Without such a limit, the shortest serves all.
    """
    ends = blocks.ends
    if not ends.size:
        return np.zeros(len(ends), np.int64)
    sizes = alike(blocks)
    machines = np.ones(sizes.shape) if most is None else np.ceil(sizes / most)
    reads = np.where((sizes > 1) & (ends >= max(minimum, 1)), ends * (1 - machines / sizes), 0.0)
    chosen = (reads > 0).argmax(axis=1) if most is None else reads.argmax(axis=1)
    return np.where(reads.any(axis=1), chosen + 1, 0).astype(np.int64)


def alike(blocks: Blocks) -> Int64s:
    """(n, k), how many prompts have the same blocks up to this one, itself included."""
    first = prefixes_of(blocks)
    sizes = np.empty(first.shape, np.int64)
    for index, column in enumerate(first.T):
        sizes[:, index] = np.bincount(column, minlength=len(column))[column]
    return sizes


def staggered(writers: Int64s, gap: int) -> Int64s:
    """(n,), the places of requests in the order to send: a permutation.

    writers: (n,), the request that each reads from, an earlier one, or -1. gap: a request is sent
    at least so many places after the one it reads from, as long as there are others to send. About
    as many wait at any time, the longest waiting is sent first.
    """
    readers: list[list[int]] = [[] for _ in range(len(writers))]
    for index, writer in enumerate(writers.tolist()):
        if writer >= 0:
            readers[writer].append(index)
    firsts = np.flatnonzero(writers < 0).tolist()[::-1]
    waiting: list[tuple[int, int]] = []  # from which place on a request may be sent
    order = np.empty(len(writers), np.int64)
    for place in range(len(writers)):
        # Enough wait to fill the gap after the last of the first requests.
        if firsts and (len(waiting) <= gap or waiting[0][0] > place):
            sent = firsts.pop()
        else:
            _, sent = heapq.heappop(waiting)
        order[place] = sent
        for reader in readers[sent]:
            heapq.heappush(waiting, (place + gap, reader))
    return order


@dataclass(slots=True)
class Counter:
    """A counter of prompts, span by span: each distinct text once, the same ids for the same text.

    A provider has another tokenizer, and tokens may span two spans there; see explain.cost for how
    counts are corrected.
    """

    _encode: Encode = field(default_factory=EstimatedTokens)
    _numbers: dict[str, int] = field(default_factory=dict)
    _ids: list[Int32s] = field(default_factory=list)

    def blocks(self, prompts: Sequence[Prompt]) -> Blocks:
        """Each span is a block. Prompts with fewer spans than others end with empty blocks."""
        rows = [[self._number(str(span.content)) for span in prompt] for prompt in prompts]
        width = max(map(len, rows), default=0)
        empty = self._number("")
        ids = np.full((len(rows), width), empty, np.int32)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        return Blocks(ids, np.array([len(block) for block in self._ids], np.int64))

    def tokens(self, prompts: Sequence[Prompt]) -> Tokens:
        """The prompts as token ids."""
        rows = ([self._number(str(span.content)) for span in prompt] for prompt in prompts)
        return Tokens.of([np.concatenate([self._ids[block] for block in row]) for row in rows])

    def count(self, prompt: Prompt) -> int:
        """Tokens of a prompt."""
        return sum(len(self._ids[self._number(str(span.content))]) for span in prompt)

    def text(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._encode([text])[0])

    def _number(self, text: str) -> int:
        if (known := self._numbers.get(text)) is not None:
            return known
        self._ids.append(np.array(self._encode([text])[0], np.int32))
        return self._numbers.setdefault(text, len(self._ids) - 1)


# A request is taken to be answered once so many times the requests under way have begun since.
_UNDER_WAY = 2
_ANSWERED_S = 5.0  # in which a request is taken to be answered, where few are sent a minute
# Prefixes are marked, and waited for, from so much of the provider's minimum on. We only estimate
# its tokens: a mark below the minimum is ignored and costs nothing, and one that is missing costs
# what its group would have read.
_LENIENT = 0.8
WORTH = 0.01
"""The least share of the input cost that marks or another order have to save."""


@dataclass(frozen=True, slots=True, eq=False)
class CachePlan:
    """order: (n,), the places of prompts in the order to send. marks: per prompt, in the order
    given, after how many of its spans a prefix is kept. keep_for: for how many seconds; None where
    no prefix is marked. lengths: the marks in tokens. shared: (n,), after how many of its spans the
    prefix ends by which it goes to the same machine as others; 0 for none. pays: whether
    anything is saved; if not, prompts are unmarked and in the order given.
    """

    order: Int64s
    marks: Marks
    lengths: Marks
    shared: Int64s
    keep_for: float | None = None
    pays: bool = True

    @property
    def changes(self) -> bool:
        """Whether prompts are sent in another order than given, or marked."""
        is_marked = any(self.marks) or bool(self.shared.any())
        return is_marked or bool((np.diff(self.order) != 1).any())

    def prompts(self, prompts: Sequence[Prompt]) -> Sequence[Prompt]:
        """The prompts in the order to send, with their marks, each built when it is read."""
        return LazySequence(
            self.order, lambda some: (self._marked(prompts, index) for index in some)
        )

    def _marked(self, prompts: Sequence[Prompt], at: int) -> Prompt:
        spans, shared = list(prompts[at]), int(self.shared[at])
        if self.keep_for is not None:
            for mark in self.marks[at]:
                spans[mark - 1] = replace(spans[mark - 1], keep=1, keep_for=self.keep_for)
        if shared:
            spans[shared - 1] = replace(spans[shared - 1], shares=True)
        return tuple(spans)


def planned(prompts: Sequence[Prompt], backend: Backend) -> CachePlan | None:
    """The plan for prompts to a backend; None where nothing is known of its cache."""
    price, under_way = known_price(backend.name), backend.limits.concurrency
    if price is None or under_way is None:
        return None
    rate = backend.limits.requests_per_minute
    return cache_plan(prompts, price, under_way, requests_per_minute=rate)


def cache_plan(
    prompts: Sequence[Prompt],
    price: Price,
    under_way: int,
    *,
    factor: float = 1.0,
    requests_per_minute: float | None = None,
    counter: Counter | None = None,
) -> CachePlan:
    """The plan for prompts in an order in which neighbours share prefixes.

    under_way: requests that are sent before the first is answered. factor: the provider's tokens
    per token of ours. requests_per_minute: how fast they are sent; if that is so slow that entries
    of five minutes expire, entries of an hour are chosen where they cost less.

    Prompts that would save less than WORTH are sent unmarked and in the order given.
    """
    counter = counter or Counter()
    blocks, rules = counter.blocks(prompts), in_our_tokens(price, factor)
    rules = replace(rules, minimum=int(_LENIENT * rules.minimum))
    nothing: Marks = [()] * len(prompts)
    nowhere = np.zeros(len(prompts), np.int64)
    as_given = CachePlan(np.arange(len(prompts)), nothing, nothing, nowhere, pays=False)
    if len(prompts) < 2 or not _is_shared(blocks, rules.minimum):
        return as_given
    if price.breakpoints:
        charged = bill(blocks, rules)
        sharing = share(blocks, rules.minimum, charged.breakpoints)
    else:
        sharing = share(blocks, rules.minimum, None)
        read = served(sharing, np.arange(len(prompts)))
        charged = Bill(rules, blocks.total - read, 0, read, as_given.lengths)
    if charged.savings <= WORTH:
        return as_given
    rate = requests_per_minute
    if rate is not None:
        under_way = min(under_way, ceil(rate / 60 * _ANSWERED_S))
    order = staggered(writers(sharing), _UNDER_WAY * under_way)
    if price.breakpoints and rate is not None:
        charged = _cheapest(blocks, order, rules, rate)
        if charged.savings <= WORTH:
            return as_given
    lengths = charged.breakpoints
    keep_for = charged.price.lifetime_s if any(lengths) else None
    shared = together(blocks, rules.minimum, price.requests_per_minute)
    marks: Marks = [
        tuple((np.searchsorted(ends, own) + 1).tolist()) if own else ()
        for ends, own in zip(blocks.ends, lengths, strict=True)
    ]
    return CachePlan(order, marks, lengths, shared, keep_for)


def _cheapest(blocks: Blocks, order: Int64s, price: Price, rate: float) -> Bill:
    """The bill with the best marks if prompts are sent in this order, so many a minute.

    Its marks are by the prompts in the order given.
    """
    sent = Blocks(blocks.ids[order], blocks.sizes)
    charged = bill(sent, price, requests_per_minute=rate)
    if price.write_1h is not None:
        hour = bill(sent, price.for_an_hour, requests_per_minute=rate)
        charged = hour if hour.usd < charged.usd else charged
    marks: Marks = [()] * len(order)
    for index, own in zip(order.tolist(), charged.breakpoints, strict=True):
        marks[index] = own
    return replace(charged, breakpoints=marks)


def _is_shared(blocks: Blocks, minimum: int) -> bool:
    """Whether two prompts share a prefix that is long enough, found without compiled loops."""
    repeats = prefixes_of(blocks) < np.arange(len(blocks.ids))[:, None]
    return bool((repeats & (blocks.ends >= max(minimum, 1))).any())


def in_our_tokens(price: Price, factor: float) -> Price:
    """A price whose minimum and steps are in tokens of ours. factor: see `cache_plan`."""
    granularity = max(1, round(price.granularity / factor))
    return replace(price, minimum=round(price.minimum / factor), granularity=granularity)


class OrderedInputs(NamedTuple):
    """rows: inputs in the order to send. schedule: of their fields, None if there are none.

    plan: what the provider caches of these prompts; None where nothing is known of that.
    """

    rows: Int64s
    schedule: Schedule | None
    plan: CachePlan | None

    def part(self, some: Int64s) -> OrderedInputs:
        """Some of all inputs, in this order."""
        assert self.schedule is not None
        schedule = self.schedule.part(np.flatnonzero(np.isin(self.schedule.rows, some)))
        return OrderedInputs(schedule.rows, schedule, None)


def ordered(inputs: Inputs, rows: Int64s, order: Order, backend: Backend) -> OrderedInputs:
    """The order that shares the most of some inputs, given in the query's order.

    Where a provider's price is known, and sharing saves nothing, rows and fields are sent as
    written: fields in another order may be some tokens more, and no answer should depend on an
    order that nobody gains by.
    """
    schedule = inputs.schedule(rows, order)
    if schedule is None:
        return OrderedInputs(rows, None, None)
    sent = rows[schedule.rows]
    plan = planned(inputs.prompts(sent, schedule), backend)
    if plan is None or plan.pays or order == "original":
        return OrderedInputs(sent, schedule, plan)
    schedule = inputs.schedule(rows, "original")
    return OrderedInputs(rows, schedule, planned(inputs.prompts(rows, schedule), backend))
