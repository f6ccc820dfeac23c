"""What a shared prefix is worth, and columns chosen by lookahead, against trying all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery._native import total_worth
from relquery.arrays import Int32s, Int64s
from relquery.reordering.solvers.ophr import optimum
from relquery.reordering.solvers.problem import Objective, Problem, is_plain
from relquery.reordering.solvers.tree import REACHES, Reach, look_ahead, reach_within
from tests.reordering.solvers.problems import (
    OBJECTIVES,
    number,
    posed,
    problems,
    random_problem,
    sequences,
    worth_of,
    worth_of_group,
)

FARTHEST = Reach(first=64, depth=8, width=64)


def weighed(cells: Sequence[Sequence[int]], by_slot: list[int]) -> Problem:
    """All items of a slot weigh the same."""
    items = number(cells, range(len(by_slot)))
    weights = np.zeros(int(items.max()) + 1, np.int64)
    weights[items] = np.array(by_slot)[:, None]
    return posed(items, range(len(by_slot)), weights)


def reached(problem: Problem, objective: Objective, reach: Reach) -> float:
    """What the schedule is worth; fails unless it sends every item once."""
    before = np.sort(problem.items, axis=0)
    problem, rows, slots = looked(problem, objective, reach)
    assert np.array_equal(np.sort(problem.items, axis=0), before)
    sent = sequences(problem.items, rows, slots)
    return worth_of(objective, problem.weights, sent)


def looked(problem: Problem, objective: Objective, reach: Reach) -> tuple[Problem, Int64s, Int32s]:
    """(problem with its passages where they were moved to, rows, slots by row id)."""
    rows, slots, items = look_ahead(problem, objective, reach)
    return problem._replace(items=items), rows, slots


def best(
    problem: Problem, objective: Objective, rows: list[int], slots: list[int], begin: float = 0.0
) -> float:
    """The most that rows can gain if each group of them may choose its next slot, by trying all."""
    if len(rows) < 2:
        return 0.0
    totals = [0.0]
    for slot in slots:
        others = [other for other in slots if other != slot]
        total = 0.0
        for item, group in groups(problem, rows, slot):
            end = begin + float(problem.weights[item])
            total += worth_of_group(objective, begin, end, len(group))
            total += best(problem, objective, group, others, end)
        totals.append(total)
    return max(totals)


def groups(problem: Problem, rows: list[int], slot: int) -> Iterable[tuple[int, list[int]]]:
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(int(problem.items[slot, row]), []).append(row)
    return found.items()


@given(
    problems() | problems(bag=True),
    st.sampled_from(OBJECTIVES),
    st.sampled_from([*REACHES, Reach(1, 1, 1), FARTHEST]),
)
def test_every_item_is_sent_once_however_near_the_look(
    problem: Problem, objective: Objective, reach: Reach
) -> None:
    assert reached(problem, objective, reach) >= 0


@given(problems(max_rows=10, max_slots=4))
def test_a_look_to_the_end_gains_no_less_than_the_best_column_of_every_segment(
    problem: Problem,
) -> None:
    slots, rows = problem.items.shape
    by_column = best(problem, Objective(), list(range(rows)), list(range(slots)))
    order, fields = optimum(problem.items, problem.weights)
    most = worth_of(Objective(), problem.weights, sequences(problem.items, order, fields))
    assert by_column <= reached(problem, Objective(), FARTHEST) <= most


def test_a_column_that_gains_less_comes_first_if_more_can_follow_it() -> None:
    # "common" hits most, but cuts across the pairs that share "long" and "name"
    common = [0, 1] * 6
    pair = [i // 2 for i in range(12)]
    problem = weighed(list(zip(common, pair, pair, strict=True)), [5, 6, 6])
    *_, slots = looked(problem, Objective(), Reach(64, 1, 1))
    assert slots[:, 0].tolist() != [0] * 12
    assert reached(problem, Objective(), Reach(64, 1, 1)) == 6 * 12


def test_a_group_that_does_not_pay_for_its_write_is_not_formed() -> None:
    # pairs of long items cost more to write than one read saves; a short item of many rows pays
    pair = [i // 2 for i in range(8)]
    problem = weighed([[a, i % 2] for i, a in enumerate(pair)], [100, 30])
    dear = Objective(read=0.9, write=1.0)
    *_, slots = looked(problem, dear, FARTHEST)
    assert set(slots[:, 0].tolist()) == {1}
    assert reached(problem, dear, FARTHEST) == pytest.approx(2 * 30 * (3 * 0.9 - 1.0))
    *_, slots = looked(problem, Objective(), FARTHEST)
    assert set(slots[:, 0].tolist()) == {0}


def test_the_look_is_shorter_where_little_time_is_given() -> None:
    problem = random_problem(0, 50, 6, 4)
    reaches = [reach_within(problem, visits) for visits in (0, 1e4, 1e5, 1e6, 1e9)]
    assert reaches[0] == REACHES[-1]
    assert reaches[-1] == REACHES[0]
    places = [REACHES.index(reach) for reach in reaches]
    assert places == sorted(places, reverse=True)


def test_what_stands_before_counts_towards_the_minimum() -> None:
    # "common" weighs 4 and "three" 2: together they reach the minimum of 6 for groups of three;
    # "pair" weighs 3 and is in groups of two. None reaches it alone.
    for copies in (1, 2):
        cells = [[c, i % 3, i // 3] for c in range(copies) for i in range(6)]
        problem = weighed(cells, [4, 3, 2])
        assert reached(problem, Objective(minimum=6), FARTHEST) == copies * 2 * (3 - 1) * 6


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
