"""The trie of rows: its structure holds through every move, and no move makes it worth less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery._native import Trie
from relquery.arrays import Int32s, Int64s
from relquery.reordering.solvers.problem import Problem
from tests.reordering.solvers.problems import (
    NONE,
    ROOT,
    WORTH,
    Structure,
    new_trie,
    number,
    posed,
    problems,
    random_problem,
)

PLENTY = 10**9


def planted(problem: Problem, order: Int64s, slots: Int32s) -> Trie:
    trie = new_trie(problem)
    trie.plant(order, slots, problem.items)
    return trie


def planted_at_random(problem: Problem, seed: int) -> Trie:
    rng = np.random.default_rng(seed)
    slots, rows = problem.items.shape
    fields = rng.permuted(np.tile(np.arange(slots, dtype=np.int32), (rows, 1)), axis=1)
    return planted(problem, rng.permutation(rows), fields)


def grown(problem: Problem) -> Trie:
    trie = new_trie(problem)
    trie.insert_all(np.arange(problem.items.shape[1]), PLENTY)
    return trie


def one_pass(trie: Trie, number: int) -> int:
    """Rows or groups, by turns; gives what it says to have gained."""
    return trie.break_groups(PLENTY) if number % 2 else trie.move_rows(PLENTY)


def check(trie: Trie, items: Int32s) -> None:
    """The path of every row holds its items, and the links, numbers and free nodes agree."""
    it = Structure.of(trie)
    for row, leaf in enumerate(it.leaf.tolist()):
        path, node = list[int](), leaf
        while node != ROOT:
            path += it.label_of(node).tolist()
            node = int(it.parent[node])
        assert sorted(path) == sorted(items[:, row].tolist())
    used = [ROOT, *np.flatnonzero(it.parent != NONE).tolist()]
    children: dict[int, list[int]] = {node: [] for node in used}
    for node in used[1:]:
        children[int(it.parent[node])].append(node)
    assert sorted(it.leaf.tolist()) == [node for node in used[1:] if not children[node]]
    for node, below in children.items():
        assert it.children[node] == len(below)
        assert it.only[node] == np.bitwise_xor.reduce(np.array([0, *below]))
        assert all(it.begin[child] == it.end[node] for child in below)
        if node != ROOT and below:  # it parts rows, and has something for them to share
            assert len(below) > 1
            assert it.begin[node] < it.end[node]
    assert (it.end[it.leaf] == len(items)).all()
    assert sorted(it.free.tolist() + used) == list(range(len(it.parent)))


def worth(trie: Trie, weights: Int64s) -> int:
    return Structure.of(trie).worth(weights)


@given(problems() | problems(bag=True), st.integers(0, 99), st.booleans())
def test_every_pass_keeps_rows_and_structure_and_gains_exactly_what_it_says(
    problem: Problem, seed: int, plant_first: bool
) -> None:
    trie = planted_at_random(problem, seed) if plant_first else grown(problem)
    check(trie, problem.items)
    reached = worth(trie, problem.weights)
    for turn in range(6):
        gained = one_pass(trie, turn)
        check(trie, problem.items)
        before, reached = reached, worth(trie, problem.weights)
        assert reached == before + gained


@given(problems(worth=WORTH[1:]), st.integers(0, 99))
def test_passes_come_to_an_end(problem: Problem, seed: int) -> None:
    trie = planted_at_random(problem, seed)
    rounds = range(2 * problem.items.size + 2)
    gains = [[one_pass(trie, turn) for turn in (1, 0)] for _ in rounds]
    assert gains[-1] == [0, 0]


def test_a_group_that_lost_by_parting_is_not_broken_up_again() -> None:
    # rows 0 and 6 hit 3 and 7 of the group of five; once one has split its label, the other cannot
    columns = [
        [0, 5, 5, 5, 5, 5, 5, 0],
        [1, 6, 6, 6, 6, 6, 1, 6],
        [2, 2, 2, 2, 2, 2, 2, 2],
        [3, 3, 3, 3, 3, 3, 8, 3],
        [4, 7, 7, 7, 7, 7, 7, 7],
    ]
    problem = posed(np.array(columns, np.int32), range(5), [1, 2, 1, 1, 1, 1, 1, 2, 1])
    trie = grown(problem)
    reached = [worth(trie, problem.weights)]
    for turn in range(8):
        one_pass(trie, turn)
        reached.append(worth(trie, problem.weights))
    assert reached[-1] == max(reached)


@pytest.mark.parametrize(
    "shape",
    [(150, 10, 3), *(pytest.param(s, marks=pytest.mark.long) for s in ((300, 6, 4), (400, 3, 40)))],
)
def test_passes_over_many_rows_climb_to_a_local_optimum(shape: tuple[int, int, int]) -> None:
    problem = random_problem(0, *shape)
    trie = planted_at_random(problem, 1)
    start = worth(trie, problem.weights)
    for _ in range(200):
        gained = one_pass(trie, 1) + one_pass(trie, 0)
        check(trie, problem.items)
        if gained == 0:
            break
    assert gained == 0
    assert worth(trie, problem.weights) > 1.2 * start


def test_a_row_goes_where_it_shares_most() -> None:
    cells = [[0, 0, 0], [1, 1, 1], [0, 1, 1]]  # the third shares two with the second
    items = number(cells, range(3))
    problem = posed(items, range(3), [1] * 6)
    trie = grown(problem)
    it = Structure.of(trie)
    assert it.parent[it.leaf[0]] == ROOT
    assert it.parent[it.leaf[1]] == it.parent[it.leaf[2]] != ROOT
    assert worth(trie, problem.weights) == 2


def test_two_rows_leave_their_group_together_where_each_alone_would_not() -> None:
    # a and b share 5 with each other; 3 with another row each. One alone gains nothing.
    cells = [[0, 0, 0], [0, 1, 1], [1, 0, 2], [2, 1, 3], [3, 2, 1]]
    items = number(cells, range(3))
    weights = np.zeros(int(items.max()) + 1, np.int64)
    weights[items[0, 0]], weights[items[1, 0]], weights[items[2, 1]] = 5, 3, 3
    problem = posed(items, range(3), weights)
    trie = planted(problem, np.arange(5), np.tile(np.arange(3, dtype=np.int32), (5, 1)))
    assert worth(trie, weights) == 5
    assert trie.move_rows(PLENTY) == 0
    assert trie.break_groups(PLENTY) == 1  # two groups of 3, not one of 5
    check(trie, problem.items)
    assert worth(trie, weights) == 6


def test_tries_at_the_edge_are_sound() -> None:
    for cells in ([[0]], [[0, 1, 2]], [[0], [0], [0]], [[0, 1]] * 5, [[i] for i in range(5)]):
        items = number(cells, range(len(cells[0])))
        problem = posed(items, range(len(items)), [7] * (int(items.max()) + 1))
        for trie in (planted_at_random(problem, 0), grown(problem)):
            for turn in range(4):
                one_pass(trie, turn)
                check(trie, problem.items)
            shared = (len(cells) - 1) * len(items) * 7 if len({*map(tuple, cells)}) == 1 else 0
            assert worth(trie, problem.weights) == shared


def test_rows_worth_nothing_to_one_another_are_kept_apart() -> None:
    items = number([[0, 1], [0, 1]], range(2))
    trie = grown(posed(items, range(2), [0, 0]))
    check(trie, items)
    it = Structure.of(trie)
    assert (it.parent[it.leaf] == ROOT).all()


def test_insertion_leaves_the_rows_that_are_in_where_they_are() -> None:
    problem = random_problem(3, 60, 4, 4)
    trie = planted_at_random(problem, 3)
    before = trie.structure()
    trie.insert_all(np.arange(problem.items.shape[1]), PLENTY)
    after = trie.structure()
    assert [each.tolist() for each in before] == [each.tolist() for each in after]


def test_a_budget_that_is_spent_stops_a_pass() -> None:
    problem = random_problem(4, 300, 5, 4)
    trie = planted_at_random(problem, 4)
    before = Structure.of(trie).leaf, worth(trie, problem.weights)
    assert trie.move_rows(-1) == 0
    assert trie.break_groups(-1) == 0
    assert np.array_equal(Structure.of(trie).leaf, before[0])
    assert worth(trie, problem.weights) == before[1]
    trie.move_rows(500)
    assert 500 < trie.steps < 5000
    check(trie, problem.items)


def test_entries_are_made_anew_where_their_space_runs_out() -> None:
    problem = random_problem(5, 300, 5, 4)
    trie = planted_at_random(problem, 5)  # a pass makes more entries than there is space for
    for turn in range(6):
        before = worth(trie, problem.weights)
        gained = one_pass(trie, turn)
        check(trie, problem.items)
        assert worth(trie, problem.weights) == before + gained


def test_moving_single_rows_loses_nothing_where_items_are_worthless() -> None:
    columns = [[0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [2, 4, 2, 4, 4, 2], [3, 3, 3, 3, 3, 5]]
    problem = posed(np.array(columns, np.int32), range(4), [0, 1, 0, 0, 1, 0])
    trie = grown(problem)
    assert worth(trie, problem.weights) == 7
    assert trie.move_rows(PLENTY) >= 0


def test_moving_single_rows_loses_nothing_where_very_many_labels_hold_the_same_items() -> None:
    # 256 groups of three rows, told apart only by items that a hundred other groups have as well
    cells = [[i >> k & 1 for k in range(8)] for i in range(256) for _ in range(3)]
    problem = posed(number(cells, range(8)), range(8), [1] * 16)
    rng = np.random.default_rng(0)
    order = (rng.permutation(256)[:, None] * 3 + np.arange(3)).ravel()
    slots = np.repeat(rng.permuted(np.tile(np.arange(8, dtype=np.int32), (256, 1)), axis=1), 3, 0)
    trie = planted(problem, order, slots)
    assert trie.move_rows(PLENTY) >= 0
