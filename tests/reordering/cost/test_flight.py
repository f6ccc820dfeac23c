"""Bills of requests that are under way together, against hand-computed ones and a naive cache."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.prices.price import Price
from relquery.reordering.cost.billing import NEVER, Blocks, bill, bill_automatic, bill_marked
from relquery.reordering.cost.tokens import Tokens

MARKED = Price("m", "2026-11", "https://example.org", 2.0, 2.5, 0.2, 10.0, 3, breakpoints=4)
AUTOMATIC = Price("a", "2026-11", "https://example.org", 1.0, 1.0, 0.1, 4.0, 4, granularity=2)
PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=9)


def blocks_of(prompts: list[list[int]]) -> Blocks:
    """A block per number; block i has i + 1 tokens, and the last number, padding, none."""
    width = max(map(len, prompts))
    ids = np.array([one + [3] * (width - len(one)) for one in prompts], np.int32)
    return Blocks(ids, np.array([1, 2, 3, 0], np.int64))


def test_a_request_under_way_cannot_be_read() -> None:
    tokens = Tokens.of([[1, 2, 3, 4, 5, 6, at] for at in range(4)])  # six tokens shared
    assert [bill_automatic(tokens, AUTOMATIC, gap).read for gap in (1, 2, 3, 4)] == [18, 12, 6, 0]
    assert bill_automatic(tokens, AUTOMATIC, NEVER).read == 0


def test_requests_beyond_what_a_machine_takes_read_what_was_written_on_the_next() -> None:
    tokens = Tokens.of([[1, 2, 3, 4, 5, 6, at] for at in range(6)])
    spread = replace(AUTOMATIC, requests_per_minute=3)
    # Two machines of three requests each: on both, the first writes.
    assert bill_automatic(tokens, spread, 1, 600.0).read == 4 * 6
    assert bill_automatic(tokens, spread, 2, 600.0).read == 2 * 6
    assert bill_automatic(tokens, spread, 1, 3.0).read == 5 * 6, "three a minute stay on one"
    assert bill_automatic(tokens, spread).read == 5 * 6


@given(PROMPTS)
def test_one_after_the_other_the_bill_is_that_of_the_optimiser(prompts: list[list[int]]) -> None:
    blocks = blocks_of(prompts)
    best = bill(blocks, MARKED)
    again = bill_marked(blocks, MARKED, best.breakpoints)
    assert (again.uncached, again.written, again.read) == (best.uncached, best.written, best.read)
    tokens = Tokens.of(prompts)
    assert bill_automatic(tokens, AUTOMATIC).read == bill(tokens, AUTOMATIC).read


@given(PROMPTS, st.integers(1, 5))
def test_an_automatic_cache_serves_what_a_naive_one_does(
    prompts: list[list[int]], gap: int
) -> None:
    read = 0
    for at, prompt in enumerate(prompts):
        shared = max(
            (_shared(prompt, other) for other in prompts[: max(0, at - gap + 1)]), default=0
        )
        read += 0 if shared < 4 else 4 + (shared - 4) // 2 * 2
    found = bill_automatic(Tokens.of(prompts), AUTOMATIC, gap)
    assert found.read == read
    assert found.tokens == sum(map(len, prompts))


@given(PROMPTS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_marked_prefixes_are_billed_as_by_a_naive_cache(
    prompts: list[list[int]], gap: int, random: Random
) -> None:
    blocks = blocks_of(prompts)
    marks, texts = [], []
    for at, prompt in enumerate(prompts):
        places = sorted(random.sample(range(len(prompt)), min(2, len(prompt))))
        texts.append([tuple(prompt[: place + 1]) for place in places])
        marks.append(tuple(int(blocks.ends[at, place]) for place in places))
    sizes = {0: 1, 1: 2, 2: 3}
    cost = 0.0
    for at, (prompt, own) in enumerate(zip(prompts, texts, strict=True)):
        cached = {one for other in texts[: max(0, at - gap + 1)] for one in other}
        lengths = [sum(sizes[one] for one in text) for text in own]
        read = max((n for n, text in zip(lengths, own, strict=True) if text in cached), default=0)
        total = sum(sizes[one] for one in prompt)
        last = max(lengths, default=0)
        cost += read * 0.2 + (last - read) * 2.5 + (total - last) * 2.0
    assert bill_marked(blocks, MARKED, marks, gap).usd == pytest.approx(cost / 1e6)


def _shared(one: list[int], other: list[int]) -> int:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return same
