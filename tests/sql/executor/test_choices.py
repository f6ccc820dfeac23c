"""Batches before a limit ask few rows in vain, and filters go in the order that costs least."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest

from relquery.sql.executor.choices import FIRST, Judged, Seen, rank, rows_to_limit, rows_to_order

ROWS = 20_000
Passes = npt.NDArray[np.bool_]


def tried_and_rounds(passes: Passes, limit: int) -> tuple[int, int]:
    """How many rows a query with this limit tries, and in how many batches."""
    seen, rounds = Seen(), 0
    while seen.passed < limit and seen.tried < len(passes):
        size = rows_to_limit(limit - seen.passed, seen)
        batch = passes[seen.tried : seen.tried + size]
        seen, rounds = seen.plus(len(batch), int(batch.sum())), rounds + 1
    return seen.tried, rounds


def needed(passes: Passes, limit: int) -> int:
    """How many rows someone tries who takes one after the other."""
    return int(np.searchsorted(np.cumsum(passes), limit)) + 1


@pytest.mark.parametrize("selectivity", [0.01, 0.05, 0.1, 0.3, 0.5, 0.9])
def test_a_limit_costs_little_more_than_trying_row_after_row(selectivity: float) -> None:
    rng = np.random.default_rng(0)
    tables = [rng.random(ROWS) < selectivity for _ in range(200)]
    for limit in (1, 3, 10, 50):
        found = [tried_and_rounds(table, limit) for table in tables]
        least = sum(needed(table, limit) for table in tables)
        assert sum(tried for tried, _ in found) <= 1.3 * least
        assert sum(rounds for _, rounds in found) / len(found) <= 11


def test_limit_10_at_selectivity_0_3_tries_60_rows_at_most_in_most_tables() -> None:
    rng = np.random.default_rng(1)
    tried = [tried_and_rounds(rng.random(2000) < 0.3, 10)[0] for _ in range(500)]
    assert np.quantile(tried, 0.98) <= 60
    assert np.mean(tried) <= 1.1 * 10 / 0.3


def test_a_batch_before_a_limit_is_never_smaller_than_what_is_missing() -> None:
    for tried in range(0, 200, 7):
        for missing in (1, 5, 40):
            assert rows_to_limit(missing, Seen(tried, tried)) == missing
            assert rows_to_limit(missing, Seen(tried, 0)) <= max(missing, 2 * tried)


def test_batches_that_learn_an_order_grow_so_that_a_million_rows_take_ten() -> None:
    tried, rounds = 0, 0
    while tried < 1_000_000:
        tried, rounds = tried + rows_to_order(tried), rounds + 1
    assert (rows_to_order(0), rounds) == (FIRST, 10)


def test_filters_by_rank_cost_as_little_as_in_the_best_order() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        filters = [
            (float(rng.integers(1, 100)), Seen(98, int(rng.integers(0, 99)))) for _ in range(4)
        ]

        def cost(order: Iterable[tuple[float, Seen]]) -> float:
            reached, total = 1.0, 0.0
            for price, seen in order:
                total, reached = total + reached * price, reached * seen.selectivity
            return total

        by_rank = sorted(filters, key=lambda one: rank(one[0], one[1].selectivity))
        assert cost(by_rank) == pytest.approx(min(map(cost, permutations(filters))))


def test_what_a_filter_shows_of_rows_that_others_passed_says_little_of_other_rows() -> None:
    judged = Judged()
    judged.add(frozenset({1}), 1000, 0)  # e.g. comedies, of horror films
    assert judged.selectivity(frozenset({1})) < 0.01
    assert judged.selectivity(frozenset()) == pytest.approx(1 / 6)
    judged.add(frozenset(), 100, 40)
    assert judged.selectivity(frozenset()) == pytest.approx(0.4, abs=0.02)
