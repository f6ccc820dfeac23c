"""Items: what a table's cells are to the solvers, in and out of bags."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relquery._native import common_prefix
from relquery.errors import ConfigError, UnknownColumnError
from relquery.reordering.encode import encode
from relquery.reordering.items import BLOCK, Items, itemize, least_table
from tests.reordering.reference import Table, agreement
from tests.reordering.strategies import tables

BAG = {"p": ["x", "y", "x"], "q": ["y", "x", "x"], "r": ["z", "x", "x"]}


def texts_by_item(table: Table, items: Items) -> dict[int, tuple[int, str]]:
    """(column or bag, text) of every item that is no copy."""
    texts = {}
    for (column, row), item in np.ndenumerate(items.same[items.slots]):
        group, value = table.item(row, column)
        texts[int(item)] = (group, table.label(column) + value)
    return texts


@given(tables(bags=True))
def test_two_cells_are_one_item_if_column_or_bag_and_value_are_equal(table: Table) -> None:
    items = itemize(table.columns, table.bags)
    sent = items.same[items.slots]
    number = {int(item): table.item(row, column) for (column, row), item in np.ndenumerate(sent)}
    assert len(set(number.values())) == len(number)
    for (column, row), item in np.ndenumerate(sent):
        assert number[int(item)] == table.item(row, column)
    assert all(len(set(row)) == len(row) for row in items.slots.T.tolist()), (
        "none is in a row twice"
    )


@given(tables(bags=True))
def test_lengths_and_labels_are_those_of_the_text(table: Table) -> None:
    items = itemize(table.columns, table.bags)
    for (column, row), item in np.ndenumerate(items.slots):
        label, length = table.label(column), table.length(row, column)
        assert (items.lengths[item], items.labels[item]) == (length, len(label))
        assert items.characters[item] == len(label) + length
        assert items.written[column] == label


@given(tables(bags=True))
def test_ranks_are_alphabetical_and_neighbours_share_whole_characters(table: Table) -> None:
    items = itemize(table.columns, table.bags)
    assert sorted(items.rank.tolist()) == list(range(len(items.rank)))
    texts = texts_by_item(table, items)
    ranked = sorted(texts, key=lambda item: items.rank[item])
    assert [texts[item][1] for item in ranked] == sorted(text for _, text in texts.values())
    for before, item in pairwise(ranked):
        least = items.shared[items.rank[before] + 1 : items.rank[item] + 1].min()
        assert least == agreement(texts[before][1], texts[item][1])


@given(tables(bags=True))
def test_prompts_are_the_prefix_and_one_line_per_item_in_the_order_sent(table: Table) -> None:
    items = itemize(table.columns, table.bags)
    slots, rows = items.slots.shape
    order, fields = np.arange(rows)[::-1], np.tile(np.arange(slots)[::-1], (rows, 1))
    prompts = items.texts_in_order(order, fields, "Answer:\n")
    for row, prompt in zip(order.tolist(), prompts, strict=True):
        lines = (table.line(row, column) for column in reversed(range(slots)))
        assert prompt == "Answer:\n" + "".join(lines)


def test_a_second_copy_in_a_row_is_an_item_of_its_own_in_all_rows_alike() -> None:
    items = itemize(encode(BAG), [["p", "q", "r"]])
    slots = items.slots.T.tolist()
    x = slots[0][0]
    assert slots[1][1] == slots[2][0] == x
    assert slots[1][2] == slots[2][1] != x
    assert slots[2][2] not in (x, slots[1][2])
    assert items.same[items.slots].T.tolist()[2] == [x, x, x]
    # copies are as long as what they copy, and rank right behind it
    copies = np.flatnonzero(items.same != np.arange(len(items.same)))
    copies = np.intersect1d(copies, items.slots)
    assert len(copies) == 2
    assert (items.characters[copies] == len("passage: x")).all()
    assert (items.shared[items.rank[copies]] == len("passage: x")).all()
    assert sorted(items.rank.tolist()) == list(range(len(items.rank)))


def test_a_bag_of_one_column_is_no_bag() -> None:
    items = itemize(encode({"a": ["x"], "b": ["x"]}), [["a"], []])
    assert not items.in_bag(0)
    assert items.written[0] == "a: "
    assert items.slots[0, 0] != items.slots[1, 0]


def test_two_bags_share_nothing() -> None:
    data = {name: ["same"] for name in "abcd"}
    items = itemize(encode(data), [["a", "c"], ["b", "d"]])
    assert items.bags.tolist() == [0, 1, 0, 1]
    assert len(set(items.slots[:, 0].tolist())) == 4
    assert len(set(items.same[items.slots[:, 0]].tolist())) == 2


def test_an_unknown_column_of_a_bag_and_one_in_two_bags_are_refused_by_name() -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'context1'"):
        itemize(encode({"context1": ["a"], "context2": ["b"]}), [["contxt1", "context2"]])
    with pytest.raises(ConfigError, match="Column q is in two bags"):
        itemize(encode(BAG), [["p", "q"], ["q", "r"]])


def test_null_and_empty_text_are_one_item_as_they_are_sent_alike() -> None:
    items = itemize(encode({"a": ["x", None, "", None], "b": ["", "y", None, ""]}))
    sent = items.same[items.slots]
    assert sent[0, 1] == sent[0, 2] == sent[0, 3] != sent[0, 0]
    assert sent[1, 0] == sent[1, 2] == sent[1, 3] != sent[0, 1]


TEXTS = st.lists(st.text("aé😀è", max_size=6), min_size=1, max_size=120, unique=True)


@given(TEXTS)
@example([f"{i:04}" for i in range(9 * BLOCK + 3)])
@example([f"{i:04}" for i in range(BLOCK)])
@example(["é", "è"])  # one byte in common, and no character
@example(["😀", "😁", "😀a"])
def test_any_two_texts_share_what_the_neighbours_between_them_do(texts: list[str]) -> None:
    items = itemize(encode({"c": texts}))
    by_rank = [f"c: {text}" for text in sorted(texts)]
    least = least_table(items.shared)
    step = max(len(texts) // 40, 1)
    for a in range(0, len(texts), step):
        for b in range(a + 1, len(texts)):
            expected = agreement(by_rank[a], by_rank[b])
            assert common_prefix(items.shared, least, a, b) == expected
