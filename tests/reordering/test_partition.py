"""Partitions hold the rows that show a value again, and count what breaks a dependency."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relquery._native import shuffle_within, violations, violations_of_each
from relquery.arrays import Int32s, Int64s
from relquery.reordering.discover import (
    Partition,
    refine,
    whole,
)
from tests.reordering.dependency_reference import rows_to_remove

ROWS = st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=25)
VALUES = 5


def codes_of(rows: list[tuple[int, ...]]) -> Int32s:
    return np.ascontiguousarray(np.array(rows, dtype=np.int32).reshape(-1, 3).T)


def scratch() -> Int64s:
    return np.zeros(VALUES, np.int64)


def by_first_two(codes: Int32s) -> Partition:
    one = refine(whole(codes.shape[1]), codes[0], scratch())
    return refine(one, codes[1], scratch())


def groups_of(partition: Partition) -> list[list[int]]:
    return [group.tolist() for group in np.split(partition.rows, partition.starts[1:-1])]


@given(ROWS)
def test_refined_groups_are_the_rows_that_agree_in_both_columns(
    rows: list[tuple[int, ...]],
) -> None:
    together = defaultdict(list)
    for row, (a, b, _) in enumerate(rows):
        together[a, b].append(row)
    expected = [group for group in together.values() if len(group) > 1]
    partition = by_first_two(codes_of(rows))
    assert sorted(group for group in groups_of(partition) if group) == sorted(expected)
    assert partition.repeats == sum(len(group) - 1 for group in expected)


@given(ROWS, st.integers(0, 25))
def test_violations_are_the_rows_to_remove_up_to_the_limit(
    rows: list[tuple[int, ...]], limit: int
) -> None:
    codes, counts = codes_of(rows), scratch()
    expected = rows_to_remove([row[:2] for row in rows], [row[2] for row in rows])
    lost = violations(*by_first_two(codes), codes[2], counts, limit)
    assert lost == min(expected, limit + 1)
    assert not counts.any()


@given(ROWS, st.integers(0, 25), st.lists(st.booleans(), min_size=3, max_size=3))
def test_columns_counted_at_once_are_counted_as_each_alone(
    rows: list[tuple[int, ...]], limit: int, asked: list[bool]
) -> None:
    codes = codes_of(rows)
    partition = by_first_two(codes)
    distinct = np.array([len(set(column)) for column in codes.tolist()], dtype=np.int64)
    lost = violations_of_each(*partition, np.array(asked), codes, scratch(), limit, distinct)
    assert lost.tolist() == [
        violations(*partition, column, scratch(), limit) if wanted else limit + 1
        for column, wanted in zip(codes, asked, strict=True)
    ]


@given(ROWS, st.integers(0, 9))
def test_a_shuffle_keeps_each_group_and_every_row_outside_the_groups(
    rows: list[tuple[int, ...]], seed: int
) -> None:
    partition = by_first_two(codes_of(rows))
    draws = np.random.default_rng(seed).integers(0, 2**31, len(rows))
    source = shuffle_within(*partition, draws, len(rows))
    alone = sorted(set(range(len(rows))) - set(partition.rows.tolist()))
    assert source[alone].tolist() == alone
    for group in groups_of(partition):
        assert sorted(source[group]) == sorted(group)


def test_a_shuffle_gives_each_order_of_a_pair_as_often() -> None:
    pairs = np.repeat(np.arange(1000, dtype=np.int32), 2)
    partition = refine(whole(2000), pairs, np.zeros(1000, np.int64))
    draws = np.random.default_rng(0).integers(0, 2**31, 2000)
    stayed = np.count_nonzero(shuffle_within(*partition, draws, 2000) == np.arange(2000))
    assert 900 < stayed < 1100
