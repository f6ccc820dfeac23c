"""`ophr` against brute force and a plain recursion over sets of rows."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Hashable, Sequence
from itertools import pairwise, permutations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet

from relquery.arrays import Int32s, Int64s
from relquery.errors import ConfigError
from relquery.reordering.encode import Columns, encode
from relquery.reordering.solvers import lattice, search
from relquery.reordering.solvers.ophr import MOST_ROWS, optimum
from relquery.reordering.solvers.problem import Problem
from tests.data import data_path
from tests.reordering.solvers.problems import number, problems

Weights = Int64s | npt.NDArray[np.float64]

WORTH = [0, 1, 1, 2, 5, 9, 100]


def items_of_columns(columns: Columns) -> tuple[Int32s, Int64s]:
    """Items and the paper's weights (eq. 2), each column for itself."""
    items = columns.codes.T + columns.offsets[:-1, None]
    return items.astype(np.int32), columns.lengths**2


def random_problem(
    seed: int, rows: int, columns: int, values: int = 3, heaviest: int = 20
) -> tuple[Int32s, Int64s]:
    """Few values a column: rows share in so many ways that bounds alone may not settle them."""
    rng = np.random.default_rng(seed)
    items = number(rng.integers(0, values, (rows, columns)).tolist(), range(columns))
    return items, rng.integers(1, heaviest, items.max() + 1) ** 2


def worth(items: Int32s, weights: Weights, rows: Int64s, fields: Int32s) -> float:
    """Of a schedule in which every row and every slot is sent once."""
    assert (rows.dtype, fields.dtype) == (np.dtype(np.int64), np.dtype(np.int32))
    assert sorted(rows) == list(range(items.shape[1]))
    assert np.array_equal(np.sort(fields, axis=1), np.tile(np.arange(len(items)), (len(rows), 1)))
    return worth_sent(weights, [tuple(items[fields[row], row].tolist()) for row in rows])


def worth_sent(weights: Weights, sent: Sequence[tuple[int, ...]]) -> float:
    """Summed weight of each row's leading items that the row before begins with too."""
    total = 0.0
    for before, row in pairwise(sent):
        for a, b in zip(before, row, strict=True):
            if a != b:
                break
            total += weights[a].item()
    return total


def worth_of_optimum(items: Int32s, weights: Weights) -> float:
    return worth(items, weights, *optimum(items, weights))


def best_of_all_orders(items: Int32s, weights: Weights) -> float:
    """The highest worth, by trying every order of rows and of the items in each."""
    best = 0.0
    for rows in permutations(items.T.tolist()):
        reached = dict.fromkeys(permutations(rows[0]), 0.0)
        for row in rows[1:]:
            reached = {
                order: max(
                    score + worth_sent(weights, [was, order]) for was, score in reached.items()
                )
                for order in permutations(row)
            }
        best = max(best, *reached.values())
    return best


def best_of_all_halvings(items: Int32s, weights: Weights) -> float:
    """The highest worth, by splitting sets of rows in two in every way.

    Of two parts sent one after the other, the first row of the second hits what all rows have in
    common. Quadratic in the sets of rows, and correct for some ten rows more than trying orders.
    """
    sets = [set(row) for row in items.T.tolist()]
    best = {0: 0.0}
    for rows in range(1, 1 << len(sets)):
        members = [s for row, s in enumerate(sets) if rows >> row & 1]
        shared = sum(weights[item].item() for item in set.intersection(*members))
        best[rows] = 0.0
        part = (rows - 1) & rows
        while part > rows ^ part:  # the part that holds the last row
            best[rows] = max(best[rows], best[part] + best[rows ^ part] + shared)
            part = (part - 1) & rows
    return best[(1 << len(sets)) - 1]


@given(problems(max_rows=4, max_slots=3, bag=True, worth=WORTH))
def test_no_order_of_rows_and_passages_is_worth_more(problem: Problem) -> None:
    best = best_of_all_orders(problem.items, problem.weights)
    assert worth_of_optimum(problem.items, problem.weights) == best
    assert best_of_all_halvings(problem.items, problem.weights) == best


@given(
    problems(max_rows=8, max_slots=6, worth=WORTH)
    | problems(max_rows=8, max_slots=6, bag=True, worth=WORTH)
)
def test_no_halving_of_the_rows_is_worth_more(problem: Problem) -> None:
    items, weights = problem.items, problem.weights
    assert worth_of_optimum(items, weights) == best_of_all_halvings(items, weights)
    (rows, fields), (rows_again, fields_again) = optimum(items, weights), optimum(items, weights)
    assert np.array_equal(rows, rows_again)
    assert np.array_equal(fields, fields_again)


RANDOM = [
    *((7, 8, 3, 20), (11, 8, 3, 20), (8, 8, 3, 3), (92, 8, 4, 3), (3, 6, 6, 20), (6, 6, 6, 20))
]  # chosen so that cases are tried, parts are solved apart, and the optimum leads by 1


def test_twelve_rows_that_share_at_random_are_worth_what_the_best_halving_is() -> None:
    for seed, columns, values, heaviest in RANDOM:
        items, weights = random_problem(seed, 12, columns, values, heaviest)
        assert worth_of_optimum(items, weights) == best_of_all_halvings(items, weights), seed


def test_a_row_may_stay_out_of_the_group_of_its_value_where_the_paper_keeps_it_in() -> None:
    cells = [
        ["aaaa", "bbb", "ccc", ""],
        ["aaaa", "bbb", "", "dddd"],
        ["aaaa", "", "ccc", "dddd"],
        ["", "bbb", "ccc", "dddd"],
    ]
    items = number(cells, range(4))
    weights = np.zeros(items.max() + 1, np.int64)
    for slot, value in ((0, 16), (1, 9), (2, 9), (3, 16)):
        weights[np.bincount(items[slot]).argmax()] = value
    assert worth_of_optimum(items, weights) == 50  # the recursion of §4.1 finds 48


def test_a_passage_hits_in_whatever_slot_it_stands() -> None:
    items = number([["x", "y"], ["z", "x"], ["y", "x"]], [0, 0])
    assert worth_of_optimum(items, np.array([4, 4, 4], np.int64)) == 4 + 8


def test_values_worth_nothing_follow_what_all_their_rows_share() -> None:
    items = number([[None, "1", "k"], [None, "2", "k"], [None, "3", "other"]], range(3))
    weights = np.where(items[2, 0] == np.arange(items.max() + 1), 9, 0)
    assert worth(items, np.ones_like(weights), *optimum(items, weights)) == 3


EDGES: dict[str, list[list[Hashable]]] = {
    "no row": [],
    "one cell": [["a"]],
    "one column": [["a"], ["b"], ["a"]],
    "no column": [[], []],
    "equal": [["a", "b"]] * 5,
    "distinct": [["a", "b"], ["c", "d"], ["e", "f"]],
    "NULL": [[None, ""], ["", None], [None, None]],
}


def test_tables_at_the_edge_are_solved_too() -> None:
    for name, cells in EDGES.items():
        columns = len(cells[0]) if cells else 2
        items = number(cells, range(columns))
        weights = np.ones(items.max(initial=-1) + 1, np.int64)
        assert optimum(items, weights)[1].shape == (len(cells), columns)
        if cells:
            best = best_of_all_orders(items, weights)
            assert worth_of_optimum(items, weights) == best, name


@given(problems(max_rows=6, max_slots=4, worth=WORTH), st.sampled_from([0.1, 1 / 3, 1e-30, 1e30]))
def test_weights_may_be_fractions_and_of_any_size(problem: Problem, scale: float) -> None:
    items, weights = problem.items, (problem.weights * scale).astype(np.float64)
    best = best_of_all_halvings(items, weights)
    assert worth_of_optimum(items, weights) == pytest.approx(best, rel=1e-9)


def test_a_value_of_five_megabytes_does_not_overflow() -> None:
    columns = encode({"a": ["x" * 5_000_000] * 30, "b": [str(i % 3) for i in range(30)]})
    assert worth_of_optimum(*items_of_columns(columns)) == 29 * 25 * 10**12 + 27


def test_what_is_too_large_or_complex_is_refused_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = np.zeros((1, MOST_ROWS + 1), np.int32)
    with pytest.raises(ConfigError, match=rf"{MOST_ROWS + 1} rows; .*at most {MOST_ROWS}.*'tree'"):
        optimum(many, np.ones(1, np.int64))
    cells = [[str(row) if row == column else "" for column in range(16)] for row in range(16)]
    items = number(cells, range(16))
    with pytest.raises(ConfigError, match=rf"too complex .*more than {lattice.MOST_SETS} .*'tree'"):
        optimum(items, np.ones(items.max() + 1, np.int64))
    problem = random_problem(seed=9, rows=20, columns=8)
    optimum(*problem)
    with pytest.raises(ConfigError, match=r"too complex for an exact search.*'tree'"):
        optimum(*problem, most_arcs=1000)
    monkeypatch.setattr(search, "MOST_DEPTH", 0)
    with pytest.raises(ConfigError, match=r"too complex for an exact search.*'tree'"):
        optimum(*problem)


@pytest.mark.parametrize(
    "seconds", [0.1, *(pytest.param(at, marks=pytest.mark.long) for at in (0.11, 0.12, 0.13, 0.14))]
)
def test_ctrl_c_ends_a_search(seconds: float) -> None:
    optimum(*random_problem(seed=9, rows=20, columns=8))
    threading.Timer(seconds, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        optimum(*random_problem(seed=0, rows=60, columns=8, values=4))


def first_rows(name: str, rows: int) -> pa.Table:
    path = data_path(name)
    table: pa.Table = csv.read_csv(path) if path.suffix == ".csv" else parquet.read_table(path)
    return table.slice(0, rows)


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rows", "seconds"),
    [
        ("beer/beer.csv", 10, 1),
        ("beer/beer.csv", 20, 10),
        ("beer/beer.csv", 50, 10),
        ("beer/ratebeer_10k.parquet", 50, 10),
        ("contributions/contributions.csv", 50, 10),
        ("movies/movies.parquet", 1000, 10),
        ("bird/posts_comments.parquet", 1000, 10),
        ("squad/squad_rag5.parquet", 50, 10),
        ("pdmx/sample100_labelled.csv", 25, 10),
    ],
)
def test_the_first_rows_of_real_tables_are_solved_in_seconds(
    name: str, rows: int, seconds: float
) -> None:
    table = first_rows(name, rows)
    items, weights = items_of_columns(encode(table))
    optimum(*items_of_columns(encode(table.slice(0, 5))))
    start = time.perf_counter()
    optimum(items, weights)
    assert time.perf_counter() - start < seconds
