"""What a shared prefix is worth, plainly and where a provider sets thresholds."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery._native import total_worth
from relquery.reordering.solvers.problem import Objective, Problem, is_plain
from tests.reordering.solvers.problems import OBJECTIVES, problems, sequences, worth_of

CLAUDE = Objective(read=0.9, write=0.25)  # writes at 1.25 and reads at 0.1 of the price


@given(problems(), st.sampled_from(OBJECTIVES), st.randoms(use_true_random=False))
def test_a_schedule_is_worth_what_its_runs_of_equal_beginnings_are(
    problem: Problem, objective: Objective, random: Random
) -> None:
    slots, rows = problem.items.shape
    order = np.array(random.sample(range(rows), rows))
    fields = np.array([random.sample(range(slots), slots) for _ in range(rows)], np.int32)
    sent = sequences(problem.items, order, fields)
    found = total_worth(objective, problem.weights, problem.items, order, fields[order])
    assert found == pytest.approx(worth_of(objective, problem.weights, sent))


def worth(objective: Objective, begin: int, end: int, rows: int) -> float:
    """What rows that share two items of these weights gain by the second."""
    items, fields = np.repeat([[0], [1]], rows, 1), np.repeat([[0, 1]], rows, 0)
    whole, first = (
        total_worth(objective, np.array([begin, weight]), items, np.arange(rows), fields)
        for weight in (end - begin, 0)
    )
    return whole - first


def test_a_plain_objective_counts_each_row_but_the_first() -> None:
    assert worth(Objective(), 3, 10, 5) == 4 * 7
    assert is_plain(Objective(start=9))
    assert not any(is_plain(objective) for objective in OBJECTIVES[1:])


def test_a_group_is_worth_what_it_saves_less_the_write_and_one_of_one_nothing() -> None:
    assert worth(CLAUDE, 0, 1000, 1) == worth(Objective(), 0, 1000, 1) == 0
    assert worth(CLAUDE, 0, 1000, 2) == pytest.approx((1 + 1) * 1000 - (1.25 + 0.1) * 1000)
    twice = Objective(read=0.9, write=1.0)  # pays from three rows on
    assert worth(twice, 0, 1000, 2) == 0
    assert worth(twice, 0, 1000, 3) == pytest.approx(3000 - (2 + 2 * 0.1) * 1000)


def test_a_cache_holds_whole_steps_above_the_minimum() -> None:
    objective = Objective(start=4, minimum=10, granularity=3)
    held = [worth(objective, 0, prefix, 2) for prefix in (0, 5, 6, 8, 9, 11, 12)]
    assert held == [0, 0, 10, 10, 13, 13, 16]


def test_items_below_the_minimum_are_worth_something_to_what_completes_them() -> None:
    objective = Objective(minimum=10)
    assert worth(objective, 0, 9, 3) == 0
    assert worth(objective, 9, 11, 3) == 2 * 11
