"""Partitions: rows that share long prefixes meet, as Spark divides them by ranges of columns."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from relquery.arrays import Int64s
from relquery.reordering.reorder import reorder
from relquery.spark.partitions import column_order

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


def _ranges(items: Int64s, order: list[int], count: int) -> list[Int64s]:
    """The rows of each partition, as Spark's ranges of these columns have them."""
    ranked = np.lexsort([items[:, column] for column in reversed(order)])
    return np.array_split(ranked, count)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_what_is_shared_is_shared_within_partitions(seed: int) -> None:
    table = _table(3_000, seed)
    items, lengths = _items(table)
    rng = np.random.default_rng(seed)
    drawn = rng.choice(3_000, 1_000, replace=False)
    order = column_order(items[drawn], [*lengths[drawn].mean(axis=0)], 3_000)
    planned = _hit_rate(table, _ranges(items, order, 8))
    whole = _hit_rate(table, [np.arange(3_000)])
    by_chance = _hit_rate(table, np.array_split(rng.permutation(3_000), 8))
    assert planned > whole - 0.03
    assert planned > by_chance + 0.1


def test_columns_come_by_what_they_save_and_those_that_save_nothing_last_as_they_are() -> None:
    rows = np.arange(1_000)
    same, pairs, unique, few = np.full(1_000, 7), rows // 2, rows, rows % 4
    items = np.column_stack((unique, few, pairs, same))
    assert column_order(items, [100, 5, 40, 10], 1_000) == [2, 3, 0, 1]
    assert column_order(items, [100, 50, 10, 60], 1_000) == [3, 1, 0, 2]
    assert column_order(items[:0], [1, 1, 1, 1], 0) == [0, 1, 2, 3]
