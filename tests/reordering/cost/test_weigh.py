"""What items are worth under each weight."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from benchmarks.reorder.tokens import llama3
from relquery.errors import ConfigError
from relquery.prices.table import find_price
from relquery.reordering.cost.meter import Weight, weigh
from relquery.reordering.cost.tokens import Encode, EstimatedTokens, tokenize, tokenize_items
from relquery.reordering.encode import encode
from relquery.reordering.items import itemize
from relquery.reordering.solvers.problem import Objective
from tests.data import data_path
from tests.reordering.reference import Table
from tests.reordering.strategies import AUTOMATIC, PAID, letters, tables, words

ITEMS = itemize(encode({"a": ["one two", None, ""], "bcd": ["éé", "éé", "z"]}))


def begun(texts: list[str]) -> list[list[int]]:
    """A token per character, and one that begins every text that is not empty."""
    return [[0, *map(ord, text)] if text else [] for text in texts]


def test_items_weigh_squared_characters_or_the_tokens_or_characters_of_a_line() -> None:
    cases: list[tuple[str, Encode | None, list[list[int]]]] = [
        ("squared", None, [[49, 4], [0, 4], [0, 1]]),  # of the value alone
        ("tokens", None, [[10, 7], [3, 7], [3, 6]]),
        ("tokens", begun, [[12, 9], [5, 9], [5, 8]]),
    ]
    for name, tokenizer, by_cell in cases:
        weighting = weigh(ITEMS, name, tokenizer, "prefix" if tokenizer else "")
        assert weighting.weights[ITEMS.slots].T.tolist() == by_cell
        assert (weighting.name, weighting.objective) == (name, Objective())
        assert weighting.price is None


def test_a_price_counts_from_its_minimum_in_its_steps() -> None:
    weighting = weigh(ITEMS, AUTOMATIC, begun, "12345")
    assert weighting.objective == Objective(start=6, minimum=3, granularity=2, read=0.9)
    assert weighting.price is AUTOMATIC
    assert weigh(ITEMS, AUTOMATIC, begun, "").objective.start == 0


def test_a_price_with_a_paid_write_costs_that_much_above_computing() -> None:
    objective = weigh(ITEMS, PAID, None, "").objective
    assert objective == Objective(minimum=5, read=0.9, write=0.25)


def test_a_price_may_be_named_and_an_unknown_weight_lists_what_there_is() -> None:
    assert weigh(ITEMS, "gpt-4o-mini", None, "").price == find_price("gpt-4o-mini")
    for name in ("token", "gpt-4o-mni", ""):
        with pytest.raises(ConfigError, match=r"tokens, squared, .*gpt-4o-mini"):
            weigh(ITEMS, name, None, "")


@given(tables(bags=True), st.sampled_from(["squared", "tokens", AUTOMATIC]))
def test_equal_texts_of_a_bag_weigh_the_same(table: Table, weight: Weight) -> None:
    items = itemize(table.columns, table.bags)
    weights = weigh(items, weight, begun, "").weights
    assert weights.shape == items.lengths.shape
    assert (weights == weights[items.same]).all()


@given(tables(bags=True), st.sampled_from([letters, words]), st.randoms(use_true_random=False))
def test_prompts_put_together_of_tokenised_items_are_those_tokenised_whole(
    table: Table, tokenizer: Encode, random: Random
) -> None:
    items = itemize(table.columns, table.bags)
    slots, rows = items.slots.shape
    order = np.array(random.sample(range(rows), rows), np.int64)
    fields = np.array([random.sample(range(slots), slots) for _ in order], np.int32)
    fields = fields.reshape(rows, slots)
    sent = items.same[items.slots][fields, order[:, None]]
    together = tokenize_items(items, tokenizer, "Is it?\n").put_together(sent)
    whole = tokenize(items.texts_in_order(order, fields, "Is it?\n"), tokenizer)
    assert np.array_equal(together.ids, whole.ids)
    assert np.array_equal(together.offsets, whole.offsets)


def test_pieces_of_words_stand_in_for_tokens() -> None:
    encode_text = EstimatedTokens()
    first, second = encode_text(["Prefix caching, 2026!", "caching Prefix"])
    assert len(first) == len(["Prefix", " caching", ",", " ", "202", "6", "!"])
    assert len(second) == len(["caching", " Prefix"])
    third, fourth = encode_text(["(unbelievable", " unbelievable_"])
    assert len(third) == len(["(unbe", "liev", "able"])
    assert len(fourth) == len([" unbelieva", "ble", "_"])
    assert encode_text(["Prefix"])[0] == first[:1]
    assert encode_text([""]) == [[]]


@pytest.mark.long
@pytest.mark.parametrize("file", ["movies/movies.parquet", "bird/posts_comments.parquet"])
def test_there_are_about_as_many_pieces_as_tokens(file: str) -> None:
    rows = parquet.read_table(data_path(file)).slice(0, 100).to_pylist()
    texts = [json.dumps(row, default=str, indent=1) for row in rows]
    encode = llama3(data_path("tokenizers/llama3_tokenizer.model"))
    assert encode is not None
    pieces, tokens = (sum(map(len, one(texts))) for one in (EstimatedTokens(), encode))
    assert 0.9 < pieces / tokens < 1.1
