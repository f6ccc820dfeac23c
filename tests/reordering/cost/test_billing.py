"""Bills against slow models of what providers do, and the rules as examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import ceil, inf

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from relquery.errors import ConfigError
from relquery.prices.price import Price, Tier
from relquery.reordering.cost.billing import Bill, Blocks, Marks, bill
from relquery.reordering.cost.tokens import Tokens, prefix_tree

Prompts = list[list[int]]
Prefix = tuple[int, ...]
Group = tuple[int, list[int]]  # (tokens shared, requests)
FOREVER = 10**9
PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), max_size=6)
RATES = st.sampled_from([None, 1.0, 2.0, 3.0])


PAID = Price("paid", "2026-11", "", 1.0, 1.25, 0.1, 1.0, breakpoints=4, lifetime_s=60)
AUTOMATIC = Price("free", "2026-11", "", 1.0, 1.0, 0.5, 1.0, lifetime_s=120)
paid, automatic = partial(replace, PAID), partial(replace, AUTOMATIC)


def bill_of(prompts: Prompts, price: Price, rate: float | None = None) -> Bill:
    return bill(Tokens.of(prompts), price, requests_per_minute=rate)


def test_prompts_beyond_a_tier_are_billed_by_it() -> None:
    tiered = automatic(tiers=(Tier(3, 4.0, 4.0, 2.0, 9.0),))
    for length in (3, 4):
        found = bill_of([[1] * length] * 2, tiered)
        calls = tiered.call_usd(length, 0) + tiered.call_usd(length, 0, cached=found.read)
        assert found.read > 0
        assert found.usd == pytest.approx(calls)
        assert found.usd_without_cache == pytest.approx(2 * tiered.call_usd(length, 0))
    marked = paid(tiers=(Tier(3, 4.0, 5.0, 0.4, 9.0),))
    found = bill_of([[1] * 4] * 9, marked)
    calls = marked.call_usd(4, 0, written=4) + 8 * marked.call_usd(4, 0, cached=4)
    assert found.usd == pytest.approx(calls)


def send(prompts: Prompts, marks: Marks, price: Price, window: int) -> tuple[int, int, int]:
    """(uncached, written, read) of a provider with breakpoints; checks what it would refuse."""
    used: dict[Prefix, int] = {}
    uncached = written = read = 0
    for i, (prompt, lengths) in enumerate(zip(prompts, marks, strict=True)):
        assert len(lengths) <= price.breakpoints
        assert all(max(1, price.minimum) <= length <= len(prompt) for length in lengths)
        used = {prefix: when for prefix, when in used.items() if i - when <= window}
        cached = max((n for n in lengths if tuple(prompt[:n]) in used), default=0)
        last = max(lengths, default=0)
        read += cached
        written += last - cached
        uncached += len(prompt) - last
        kept = [n for n in range(1, cached + 1) if tuple(prompt[:n]) in used]
        for n in [*kept, *(n for n in lengths if n > cached)]:
            used[tuple(prompt[:n])] = i
    return uncached, written, read


def groups_of(prompts: Prompts, minimum: int, window: int) -> list[Group]:
    """Two requests or more that share a prefix, no gap between them longer than the window."""
    groups: dict[Prefix, list[list[int]]] = {}
    for i, prompt in enumerate(prompts):
        for n in range(max(1, minimum), len(prompt) + 1):
            runs = groups.setdefault(tuple(prompt[:n]), [[i]])
            if i - runs[-1][-1] > window:
                runs.append([i])
            elif runs[-1][-1] != i:
                runs[-1].append(i)
    found = [(len(prefix), run) for prefix, runs in groups.items() for run in runs]
    return [(length, run) for length, run in found if len(run) > 1]


def cost_of(prompts: Prompts, marked: Sequence[Group], price: Price) -> float:
    """USD if these groups are marked; infinite if a request needs more marks than it may have."""
    total = 0.0
    for i, prompt in enumerate(prompts):
        new = [length for length, run in marked if run[0] == i]
        old = [length for length, run in marked if i in run[1:]]
        if len(new) + bool(old) > price.breakpoints:
            return inf
        cached, last = max(old, default=0), max(new + old, default=0)
        total += cached * price.read + (last - cached) * price.write
        total += (len(prompt) - last) * price.uncached
    return total / 1e6


def cheapest(prompts: Prompts, price: Price, window: int) -> float:
    """By trying all sets of groups."""
    groups = groups_of(prompts, price.minimum, window)
    sets = (marked for size in range(len(groups) + 1) for marked in combinations(groups, size))
    return min(cost_of(prompts, marked, price) for marked in sets)


def automatic_hits(prompts: Prompts, price: Price, rate: float | None) -> int:
    """Tokens read from the caches of all machines, each a list of (when, prompt)."""
    machines: dict[tuple[int, int], list[tuple[int, list[int]]]] = {}
    sent: Counter[tuple[int, Prefix]] = Counter()
    window = FOREVER if rate is None else int((price.lifetime_s or 0) * rate / 60)
    total = 0
    for i, prompt in enumerate(prompts):
        minute = 0 if rate is None else int(i / rate)
        group = (minute, tuple(prompt[: price.minimum]))
        further = 0
        if rate is not None and price.requests_per_minute and len(prompt) >= price.minimum:
            further = ceil((sent[group] + 1) / price.requests_per_minute) - 1
            sent[group] += 1
        cache = machines.setdefault((minute if further else -1, further), [])
        hit = max((common(prompt, other) for when, other in cache if i - when <= window), default=0)
        cache.append((i, prompt))
        if hit >= price.minimum:
            total += hit - (hit - price.minimum) % price.granularity
    return total


def common(a: list[int], b: list[int]) -> int:
    return next((n for n in range(min(len(a), len(b)), 0, -1) if a[:n] == b[:n]), 0)


@given(PROMPTS, st.integers(0, 2), st.integers(1, 4), RATES)
def test_a_provider_charges_what_the_bill_says_and_never_more_than_without_a_cache(
    prompts: Prompts, minimum: int, breakpoints: int, rate: float | None
) -> None:
    price = paid(minimum=minimum, breakpoints=breakpoints)
    result = bill_of(prompts, price, rate)
    assert result.usd <= result.usd_without_cache + 1e-12
    assert result.savings >= -1e-12
    charged = send(prompts, result.breakpoints, price, FOREVER if rate is None else int(rate))
    assert charged == (result.uncached, result.written, result.read)
    assert sum(charged) == sum(map(len, prompts))


@given(PROMPTS, st.integers(0, 2), st.integers(1, 3), st.sampled_from([1.0, 1.25, 2.0]), RATES)
@example([[1], [1, 1, 1], [1, 1, 2], [1, 1, 2, 1], [1, 1, 1]], 0, 2, 1.25, None)
def test_no_set_of_marks_is_cheaper(
    prompts: Prompts, minimum: int, breakpoints: int, write: float, rate: float | None
) -> None:
    window = FOREVER if rate is None else int(rate)
    assume(len(groups_of(prompts, minimum, window)) <= 8)
    price = paid(minimum=minimum, breakpoints=breakpoints, write=write)
    assert bill_of(prompts, price, rate).usd == pytest.approx(cheapest(prompts, price, window))


@given(
    st.lists(st.lists(st.integers(0, 1), max_size=6), max_size=12),
    st.integers(0, 2),
    st.integers(1, 2),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 1.0, 3.0, 5.0]),
)
def test_an_automatic_cache_reads_what_its_machines_hold(
    prompts: Prompts, minimum: int, step: int, limit: int | None, rate: float | None
) -> None:
    price = automatic(minimum=minimum, granularity=step, requests_per_minute=limit)
    result = bill_of(prompts, price, rate)
    assert result.read == automatic_hits(prompts, price, rate)
    assert (result.written, result.tokens) == (0, sum(map(len, prompts)))


def test_a_group_of_one_is_never_written_and_one_of_two_is_where_a_paid_cache_pays() -> None:
    result = bill_of([[1] * 9, [2] * 9], PAID)
    assert (result.uncached, result.written, result.read) == (18, 0, 0)
    assert result.breakpoints == [(), ()]
    result = bill_of([[1] * 9 + [2], [1] * 9 + [3]], PAID)
    assert (result.uncached, result.written, result.read) == (2, 9, 9)
    assert result.breakpoints == [(9,), (9,)]
    assert result.usd == pytest.approx((2 + 9 * 1.25 + 9 * 0.1) / 1e6)
    assert result.savings == pytest.approx(1 - (2 + 9 * 1.35) / 20)
    price = paid(write=2.0)  # needs a group of three
    assert bill_of([[1] * 9] * 2, price).written == 0
    assert bill_of([[1] * 9] * 3, price).written == 9


def test_marks_are_where_they_save_most() -> None:
    one, two = paid(breakpoints=1), paid(breakpoints=2)
    long, short = [1] * 5 + [2] * 2, [1] * 5
    cases: list[tuple[Prompts, Price, list[tuple[int, ...]], tuple[int, int, int]]] = [
        # a mark below another writes only what lies beyond
        ([[1, 1, 2, 2]] * 2 + [[1, 1, 3]], PAID, [(2, 4), (2, 4), (2,)], (1, 4, 6)),
        # one breakpoint takes the prefix that saves most
        ([long, long, short, short], one, [(5,)] * 4, (4, 5, 15)),
        ([[1] * 2 + [2] * 9] * 2 + [[1] * 2], one, [(11,), (11,), ()], (2, 11, 11)),
        # nested prefixes may outnumber the marks of a request
        (
            [[1, 2], [1, 1, 2], [1, 1, 1, 2], [1, 1, 1, 3]],
            two,
            [(1,), (1, 2), (2, 3), (2, 3)],
            (4, 3, 6),
        ),
    ]
    for prompts, price, marks, charged in cases:
        result = bill_of(prompts, price)
        assert result.breakpoints == marks
        assert (result.uncached, result.written, result.read) == charged


def test_nothing_sent_costs_nothing_and_a_rate_that_sends_nothing_is_refused() -> None:
    for price in (PAID, AUTOMATIC):
        result = bill_of([], price)
        assert (result.tokens, result.usd, result.savings, result.breakpoints) == (0, 0, 0, [])
    for rate in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="requests_per_minute is"):
            bill_of([[1]], PAID, rate)


ROWS = st.integers(0, 3).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 3), min_size=width, max_size=width), max_size=6)
)
SIZES = st.lists(st.integers(1, 3), min_size=4, max_size=4)


def blocks_of(rows: list[list[int]], sizes: list[int], head: int = 0, tail: int = 0) -> Blocks:
    width = len(rows[0]) if rows else 0
    sent = np.array(rows, np.int32).reshape(len(rows), width)
    return Blocks.of(sent, np.array(sizes, np.int64), head, tail)


def tokens_of(blocks: Blocks) -> list[list[int]]:
    """Every token of a block says which block it is and where in it: no two blocks begin alike."""
    return [
        [int(block) * 10 + k for block in row for k in range(blocks.sizes[block])]
        for row in blocks.ids
    ]


@given(ROWS, SIZES, st.integers(0, 2), st.integers(0, 2), st.integers(1, 4))
def test_a_provider_charges_what_the_bill_of_blocks_says(
    rows: list[list[int]], sizes: list[int], head: int, tail: int, breakpoints: int
) -> None:
    blocks = blocks_of(rows, sizes, head, tail)
    price = paid(minimum=2, breakpoints=breakpoints)
    result = bill(blocks, price)
    charged = send(tokens_of(blocks), result.breakpoints, price, 10**9)
    assert charged == (result.uncached, result.written, result.read)
    for marks, ends in zip(result.breakpoints, blocks.ends.tolist(), strict=True):
        assert set(marks) <= set(ends)


@given(ROWS, SIZES)
def test_blocks_that_begin_differently_share_what_their_tokens_share(
    rows: list[list[int]], sizes: list[int]
) -> None:
    blocks = blocks_of(rows, sizes, head=1)
    tree, of_tokens = blocks.tree(), prefix_tree(Tokens.of(tokens_of(blocks)))
    assert tree.hits.tolist() == of_tokens.hits.tolist()
    assert tree.depth[tree.leaf].tolist() == of_tokens.depth[of_tokens.leaf].tolist()
    assert blocks.total == sum(map(len, tokens_of(blocks)))


def test_a_mark_goes_back_to_where_a_block_ended() -> None:
    in_tokens = Tokens.of([[1, 1, 2, 7], [1, 1, 3, 7]])  # two blocks: of two tokens, and of two
    assert bill(in_tokens, PAID).breakpoints == [(2,), (2,)]
    shared = Tokens.of([[1, 1, 2, 7], [1, 1, 2, 8]])  # the second blocks begin alike
    assert bill(shared, PAID).breakpoints == [(3,), (3,)]
    assert bill(blocks_of([[0, 1], [0, 2]], [2, 2, 2]), PAID).breakpoints == [(2,), (2,)]


def test_prompts_without_blocks_cost_nothing() -> None:
    nothing: list[list[list[int]]] = [[], [[]], [[], []]]
    for rows in nothing:
        result = bill(blocks_of(rows, []), PAID)
        assert (result.tokens, result.breakpoints) == (0, [()] * len(rows))
