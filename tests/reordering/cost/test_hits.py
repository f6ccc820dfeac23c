"""Hits on token ids: each cache against a readable model of it; PHC and PHR by definition."""

from __future__ import annotations

from collections import OrderedDict
from itertools import takewhile
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import ConfigError
from relquery.reordering.cost.measure import (
    CharacterHits,
    hits,
    lru_hits,
    measure_hits,
    phc,
    previous_hits,
    unlimited_hits,
)
from relquery.reordering.cost.tokens import Tokens, prefix_tree, tokenize
from relquery.reordering.encode import encode
from relquery.reordering.items import Items, itemize
from tests.reordering import reference
from tests.reordering.strategies import tables

Prompts = list[list[int]]
TOKENS = st.sampled_from([0, 1, 2**31 - 1])
PROMPTS = st.lists(st.lists(TOKENS, max_size=8), max_size=10)


def shared(a: list[int], b: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))


def best_of(prompts: Prompts, window: int) -> list[int]:
    """The longest prefix shared with one of the `window` prompts before."""
    return [
        max((shared(prompt, before) for before in prompts[max(0, i - window) : i]), default=0)
        for i, prompt in enumerate(prompts)
    ]


def paged(prompts: Prompts, blocks: int, size: int) -> list[int]:
    """An LRU cache as a dictionary, least recently used block first."""
    cache: OrderedDict[tuple[int, ...], None] = OrderedDict()
    hits = []
    for prompt in prompts:
        keys = [tuple(prompt[:end]) for end in range(size, len(prompt) + 1, size)][:blocks]
        hits.append(size * len(list(takewhile(cache.__contains__, keys))))
        for key in reversed(keys):
            cache[key] = None
            cache.move_to_end(key)
        while len(cache) > blocks:
            cache.popitem(last=False)
    return hits


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


@given(PROMPTS, st.integers(0, 4))
def test_a_cache_serves_the_longest_prefix_of_the_previous_a_recent_or_any_earlier_prompt(
    prompts: Prompts, window: int
) -> None:
    tokens = Tokens.of(prompts)
    assert previous_hits(tokens).tolist() == best_of(prompts, 1)
    assert prefix_tree(tokens, window=window).hits.tolist() == best_of(prompts, window)
    unlimited = unlimited_hits(tokens).tolist()
    assert unlimited == best_of(prompts, len(prompts))
    assert unlimited == lru_hits(tokens, 1000, 1).tolist(), "room for all tokens"


@given(PROMPTS, st.data())
def test_caches_that_are_told_apart_share_nothing(prompts: Prompts, data: st.DataObject) -> None:
    roots = data.draw(st.lists(st.integers(0, 2), min_size=len(prompts), max_size=len(prompts)))
    tree = prefix_tree(Tokens.of(prompts), np.array(roots, np.int64))
    for root in set(roots):
        mine = [i for i, other in enumerate(roots) if other == root]
        alone = unlimited_hits(Tokens.of(prompts[i] for i in mine))
        assert tree.hits[mine].tolist() == alone.tolist()


@given(PROMPTS)
def test_the_tree_has_a_path_of_its_length_for_every_prompt(prompts: Prompts) -> None:
    tree = prefix_tree(Tokens.of(prompts))
    assert tree.depth[tree.leaf].tolist() == [len(prompt) for prompt in prompts]
    assert len(set(tree.leaf.tolist())) == len({tuple(prompt) for prompt in prompts})
    assert all(tree.depth[tree.parent[1:]] < tree.depth[1:])


@given(PROMPTS, st.integers(1, 8), st.integers(1, 3))
def test_an_lru_cache_serves_leading_whole_blocks(prompts: Prompts, blocks: int, size: int) -> None:
    assert lru_hits(Tokens.of(prompts), blocks, size).tolist() == paged(prompts, blocks, size)


def test_an_lru_cache_has_room() -> None:
    for blocks, size in ((0, 16), (4, 0)):
        with pytest.raises(ConfigError, match="is 0; an LRU cache needs at least 1"):
            lru_hits(Tokens.of([[1]]), blocks, size)


def encode_with_merges(texts: list[str]) -> Prompts:
    """Characters as tokens, except that "ab" is one token."""
    return [letters(text.replace("ab", "§")) for text in texts]


def test_tokens_that_merge_across_fields_are_counted_as_sent() -> None:
    first, others = "xa", ["b", "c"]
    tokens = tokenize([first + other for other in others], encode_with_merges)
    by_field = len(encode_with_merges([first])[0])
    assert by_field == 2
    assert unlimited_hits(tokens).tolist() == [0, 1]


def test_every_text_is_tokenized_once_in_order_over_several_batches_or_refused() -> None:
    texts = [chr(97 + i % 26) for i in range(10_000)]
    tokens = tokenize(texts, encode_with_merges)
    assert tokens.ids.tolist() == [ord(text) for text in texts]
    assert tokens.lengths.tolist() == [1] * len(texts)
    with pytest.raises(ConfigError, match="returned 1 sequences for 2 texts"):
        tokenize(["a", "b"], lambda texts: [[1]])


def test_the_report_says_which_cache_serves_how_much() -> None:
    tokens = Tokens.of(map(letters, ["aaaa", "bbbb", "aaab"]))
    report = measure_hits(tokens, blocks=4, block_size=2)
    assert (report.tokens, report.previous, report.unlimited, report.lru) == (12, 0, 3, 2)
    assert report.rate(report.unlimited) == 0.25
    assert str(report) == (
        "12 tokens sent, of which hit:\n"
        "  0.0%  0 tokens from the previous prompt\n"
        " 25.0%  3 tokens from any earlier prompt (unlimited cache)\n"
        " 16.7%  2 tokens from an LRU cache of 4 blocks of 2 tokens"
    )


def test_nothing_sent_hits_nothing() -> None:
    report = measure_hits(Tokens.of([]), blocks=1)
    assert (report.tokens, report.previous, report.unlimited, report.lru) == (0, 0, 0, 0)
    assert report.rate(report.unlimited) == 0
    assert "LRU" not in str(measure_hits(Tokens.of([[], []])))


def items_of(
    data: dict[str, list[str | None]], bags: list[list[str]] | None = None
) -> tuple[Items, np.ndarray, np.ndarray]:
    """Items, and a schedule that sends the table as it is."""
    items = itemize(encode(data), bags or [])
    slots, rows = items.slots.shape
    return items, np.arange(rows), np.tile(np.arange(slots, dtype=np.int16), (rows, 1))


@given(tables(bags=True), st.randoms(use_true_random=False))
def test_any_schedule_is_measured_by_the_definition(table: reference.Table, random: Random) -> None:
    columns = len(table.classes)
    order = random.sample(range(len(table.cells)), len(table.cells))
    sent = [(row, random.sample(range(columns), columns)) for row in order]
    rows = np.array(order, dtype=np.int64)
    fields = np.array([fields for _, fields in sent], dtype=np.int16).reshape(len(order), columns)
    items = itemize(table.columns, table.bags)
    assert phc(items, rows, fields) == reference.hits(table, sent)
    expected = reference.hit_rate(table, sent)
    assert hits(items, rows, fields).rate == pytest.approx(expected)


def test_depths_add_up_to_the_hits_and_say_where_rows_part() -> None:
    found: CharacterHits = hits(
        *items_of({"a": ["x", "x", "y"], "b": ["1", "2", "2"], "c": ["z"] * 3})
    )
    assert [depth.prefixes for depth in found.depths] == [2, 3, 3]
    assert [depth.rows for depth in found.depths] == [1, 0, 0]
    assert [depth.hit_characters for depth in found.depths] == [4 + 3, 3, 0]
    assert found.hit == 10


def test_a_table_without_rows_hits_nothing() -> None:
    assert hits(*items_of({"a": []})).rate == 0
    assert phc(*items_of({})) == 0
