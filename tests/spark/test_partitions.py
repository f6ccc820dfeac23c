"""Partitions: rows that share long prefixes meet, whoever places them and with whom."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.arrays import Int64s
from relquery.reordering.reorder import reorder
from relquery.spark.partitions import DrawnSample, Partitions

Table = dict[str, list[str]]


def _table(rows: int, seed: int) -> Table:
    """Columns of which some repeat often, some seldom, and one never."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 400, rows)
    return {
        "id": [f"{number:06}" for number in range(rows)],
        "description": [f"a long description of kind {kind} " * 4 for kind in kinds],
        "maker": [f"maker {kind % 7} in a town far away" for kind in kinds],
        "review": [f"what somebody wrote {text} " * 3 for text in rng.integers(0, rows // 5, rows)],
        "flag": [str(flag) for flag in rng.integers(0, 2, rows)],
    }


def _items(table: Table) -> tuple[Int64s, Int64s]:
    """Hashes and lengths of the items of a table."""
    texts = [[f"{name}: {value}" for value in column] for name, column in table.items()]
    hashes = [[zlib.crc32(text.encode()) for text in column] for column in texts]
    return np.array(hashes, np.int64).T, np.array([list(map(len, one)) for one in texts]).T


def _hit_rate(table: Table, groups: list[Int64s]) -> float:
    """The hit rate if each group is ordered by itself."""
    hit = total = 0.0
    for rows in groups:
        part = {name: [column[row] for row in rows] for name, column in table.items()}
        weight = sum(len(name) + 2 + len(value) for name in part for value in part[name])
        hit += reorder(part, seconds=0.2).report.phr * weight
        total += weight
    return hit / total


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_what_is_shared_is_shared_within_partitions(seed: int) -> None:
    table = _table(3_000, seed)
    items, lengths = _items(table)
    rng = np.random.default_rng(seed)
    drawn = rng.choice(3_000, 1_000, replace=False)
    places = Partitions.plan(DrawnSample(items[drawn], lengths[drawn], 3_000), 8).of(items)
    planned = _hit_rate(table, [np.flatnonzero(places == part) for part in range(8)])
    whole = _hit_rate(table, [np.arange(3_000)])
    by_chance = _hit_rate(table, np.array_split(rng.permutation(3_000), 8))
    assert planned > whole - 0.03
    assert planned > by_chance + 0.1


def test_partitions_are_of_about_equal_size() -> None:
    items, lengths = _items(_table(20_000, 2))
    plan = Partitions.plan(DrawnSample(items[::10], lengths[::10], 20_000), 16)
    sizes = np.bincount(plan.of(items), minlength=16)
    assert sizes.max() < 2 * 20_000 / 16


def test_one_value_in_all_rows_does_not_make_one_partition() -> None:
    items = np.column_stack((np.full(1_000, 7), np.arange(1_000) + 100))
    plan = Partitions.plan(DrawnSample(items, np.full((1_000, 2), 10), 1_000), 10)
    assert np.bincount(plan.of(items), minlength=10).min() > 50


@given(
    st.integers(0, 30).flatmap(
        lambda rows: st.lists(
            st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=rows, max_size=rows
        )
    ),
    st.integers(1, 9),
    st.integers(0, 1_000_000),
)
def test_a_row_has_one_place_whatever_comes_with_it(
    rows: list[list[int]], count: int, total: int
) -> None:
    drawn = np.array(rows, np.int64).reshape(-1, 3) + np.array([0, 10, 20])
    plan = Partitions.plan(DrawnSample(drawn, np.full(drawn.shape, 4), total), count)
    rng = np.random.default_rng(0)
    unseen = rng.integers(-5, 30, (40, 3))
    every = np.concatenate((drawn, unseen))
    places = plan.of(every)
    assert ((places >= 0) & (places < count)).all()
    shuffled = rng.permutation(len(every))
    assert (plan.of(every[shuffled]) == places[shuffled]).all()
    assert all(plan.of(every[at : at + 1])[0] == places[at] for at in range(len(every)))
    assert plan.nodes <= 1 + 2 * drawn.size
