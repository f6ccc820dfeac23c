"""`ophr` against brute force, a plain recursion over sets of rows, and the paper's recursion."""

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
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from relquery.arrays import Int32s, Int64s
from relquery.errors import ConfigError
from relquery.table.columns import Columns, encode
from relquery.table.solvers.exact import lattice, search
from relquery.table.solvers.exact.ophr import MOST_ROWS, optimum
from tests.data import data_path
from tests.table import reference
from tests.table.strategies import columns_of, tables

Weights = Int64s | npt.NDArray[np.float64]
Cells = list[list[str | None]]
Sent = list[tuple[int, ...]]  # the items of each row, in the order sent

WORTH = [0, 1, 1, 2, 5, 9, 100]


def items_of(cells: Sequence[Sequence[Hashable]], bags: Sequence[int]) -> Int32s:
    """(m, n): the same item for the same value in a column or bag; a second copy is another."""
    number: dict[tuple[Hashable, ...], int] = {}
    rows = []
    for row in cells:
        keys: list[tuple[Hashable, ...]] = []
        for bag, value in zip(bags, row, strict=True):
            keys.append((bag, value, sum(key[:2] == (bag, value) for key in keys)))
        rows.append([number.setdefault(key, len(number)) for key in keys])
    return np.array(rows, np.int32).reshape(len(cells), len(bags)).T


def items_of_columns(columns: Columns) -> tuple[Int32s, Int64s]:
    """Items and the paper's weights (eq. 2), each column for itself."""
    items = columns.codes.T + columns.offsets[:-1, None]
    return items.astype(np.int32), columns.lengths**2


@st.composite
def problems(
    draw: st.DrawFn, max_rows: int, max_slots: int, *, bag: bool = False
) -> tuple[Int32s, Int64s]:
    """Items and weights of few values, some worth nothing; bag: all slots but the first are one."""
    slots = draw(st.integers(1, max_slots))
    row = st.lists(st.integers(0, 3), min_size=slots, max_size=slots)
    cells = draw(st.lists(row, min_size=1, max_size=max_rows))
    items = items_of(cells, [min(slot, 1) if bag else slot for slot in range(slots)])
    count = int(items.max()) + 1
    weights = draw(st.lists(st.sampled_from(WORTH), min_size=count, max_size=count))
    return items, np.array(weights, np.int64)


def random_problem(
    seed: int, rows: int, columns: int, values: int = 3, heaviest: int = 20
) -> tuple[Int32s, Int64s]:
    """Few values a column: rows share in so many ways that bounds alone may not settle them."""
    rng = np.random.default_rng(seed)
    items = items_of(rng.integers(0, values, (rows, columns)).tolist(), range(columns))
    return items, rng.integers(1, heaviest, items.max() + 1) ** 2


def sent_by(items: Int32s, rows: Int64s, fields: Int32s) -> Sent:
    return [tuple(items[fields[row], row].tolist()) for row in rows]


def worth(weights: Weights, sent: Sent) -> float:
    """Summed weight of each row's leading items that the row before begins with too."""
    total = 0
    for before, row in pairwise(sent):
        for a, b in zip(before, row, strict=True):
            if a != b:
                break
            total += weights[a].item()
    return total


def best_of_all_orders(items: Int32s, weights: Weights) -> float:
    """The highest worth, by trying every order of rows and of the items in each."""
    best = 0.0
    for rows in permutations(items.T.tolist()):
        reached = dict.fromkeys(permutations(rows[0]), 0.0)
        for row in rows[1:]:
            reached = {
                order: max(score + worth(weights, [was, order]) for was, score in reached.items())
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


def best_of_the_paper(items: Int32s, weights: Weights, rows: list[int], slots: list[int]) -> int:
    """OPHR as in §4.1: all rows that have a value, and the others."""
    best = 0
    for slot in slots:
        for item in {int(items[slot, row]) for row in rows}:
            group = [row for row in rows if items[slot, row] == item]
            if len(group) > 1:
                others = [row for row in rows if row not in group]
                left = [s for s in slots if s != slot]
                hits = weights[item].item() * (len(group) - 1)
                hits += best_of_the_paper(items, weights, others, slots)
                best = max(best, hits + best_of_the_paper(items, weights, group, left))
    return best


@settings(max_examples=50)
@given(tables(max_rows=4, max_columns=3))
def test_no_order_of_rows_and_fields_has_more_hits(table: reference.Table) -> None:
    items, weights = items_of_columns(columns_of(table))
    rows, fields = optimum(items, weights)
    sent = [(row, fields[row].tolist()) for row in rows.tolist()]
    assert reference.hits(table, sent) == reference.best_hits(table)


@settings(max_examples=50)
@given(problems(max_rows=4, max_slots=3, bag=True))
def test_no_order_of_rows_and_passages_is_worth_more(problem: tuple[Int32s, Int64s]) -> None:
    sent = sent_by(problem[0], *optimum(*problem))
    assert worth(problem[1], sent) == best_of_all_orders(*problem)


@settings(max_examples=30)
@given(problems(max_rows=4, max_slots=3, bag=True))
def test_all_halvings_are_worth_as_much_as_all_orders(problem: tuple[Int32s, Int64s]) -> None:
    assert best_of_all_halvings(*problem) == best_of_all_orders(*problem)


@given(problems(max_rows=8, max_slots=6) | problems(max_rows=8, max_slots=6, bag=True))
def test_no_halving_of_the_rows_is_worth_more(problem: tuple[Int32s, Int64s]) -> None:
    sent = sent_by(problem[0], *optimum(*problem))
    assert worth(problem[1], sent) == best_of_all_halvings(*problem)


@pytest.mark.parametrize(
    ("seed", "columns", "values", "heaviest"),
    [(7, 8, 3, 20), (11, 8, 3, 20), (8, 8, 3, 3), (92, 8, 4, 3), (3, 6, 6, 20), (6, 6, 6, 20)],
)  # chosen so that cases are tried, parts are solved apart, and the optimum leads by 1
def test_twelve_rows_that_share_at_random_are_worth_what_the_best_halving_is(
    seed: int, columns: int, values: int, heaviest: int
) -> None:
    items, weights = random_problem(seed, 12, columns, values, heaviest)
    sent = sent_by(items, *optimum(items, weights))
    assert worth(weights, sent) == best_of_all_halvings(items, weights)


@given(problems(max_rows=8, max_slots=5, bag=True))
def test_a_schedule_sends_every_slot_of_every_row_once(problem: tuple[Int32s, Int64s]) -> None:
    rows, fields = optimum(*problem)
    slots, count = problem[0].shape
    assert (rows.dtype, fields.dtype) == (np.int64, np.int32)
    assert sorted(rows) == list(range(count))
    assert np.array_equal(np.sort(fields, axis=1), np.tile(np.arange(slots), (count, 1)))


@given(problems(max_rows=8, max_slots=5))
def test_the_same_problem_gives_the_same_schedule(problem: tuple[Int32s, Int64s]) -> None:
    (rows, fields), (rows_again, fields_again) = optimum(*problem), optimum(*problem)
    assert np.array_equal(rows, rows_again)
    assert np.array_equal(fields, fields_again)


def test_a_row_may_stay_out_of_the_group_of_its_value_where_the_paper_keeps_it_in() -> None:
    cells = [
        ["aaaa", "bbb", "ccc", ""],
        ["aaaa", "bbb", "", "dddd"],
        ["aaaa", "", "ccc", "dddd"],
        ["", "bbb", "ccc", "dddd"],
    ]
    items = items_of(cells, range(4))
    weights = np.zeros(items.max() + 1, np.int64)
    for slot, value in ((0, 16), (1, 9), (2, 9), (3, 16)):
        weights[np.bincount(items[slot]).argmax()] = value
    assert best_of_the_paper(items, weights, [0, 1, 2, 3], [0, 1, 2, 3]) == 48
    assert worth(weights, sent_by(items, *optimum(items, weights))) == 50


def test_a_passage_hits_in_whatever_slot_it_stands() -> None:
    items = items_of([["x", "y"], ["z", "x"], ["y", "x"]], [0, 0])
    weights = np.array([4, 4, 4], np.int64)
    assert worth(weights, sent_by(items, *optimum(items, weights))) == 4 + 8


def test_values_worth_nothing_follow_what_all_their_rows_share() -> None:
    items = items_of([[None, "1", "k"], [None, "2", "k"], [None, "3", "other"]], range(3))
    weights = np.where(items[2, 0] == np.arange(items.max() + 1), 9, 0)
    rows, fields = optimum(items, weights)
    assert worth(np.ones_like(weights), sent_by(items, rows, fields)) == 3


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [["a"]],
        [["a"], ["b"], ["a"]],
        [[], []],
        [["a", "b"]] * 5,
        [["a", "b"], ["c", "d"], ["e", "f"]],
        [[None, ""], ["", None], [None, None]],
    ],
    ids=["no row", "one cell", "one column", "no column", "equal", "distinct", "NULL"],
)
def test_tables_at_the_edge_are_solved_too(cells: Cells) -> None:
    columns = len(cells[0]) if cells else 2
    items = items_of(cells, range(columns))
    weights = np.ones(items.max(initial=-1) + 1, np.int64)
    rows, fields = optimum(items, weights)
    assert fields.shape == (len(cells), columns)
    if cells:
        sent = sent_by(items, rows, fields)
        assert worth(weights, sent) == best_of_all_orders(items, weights)


@given(problems(max_rows=6, max_slots=4), st.sampled_from([0.1, 1 / 3, 1e-30, 1e30]))
def test_weights_may_be_fractions_and_of_any_size(
    problem: tuple[Int32s, Int64s], scale: float
) -> None:
    items, weights = problem[0], problem[1] * scale
    sent = sent_by(items, *optimum(items, weights))
    assert worth(weights, sent) == pytest.approx(best_of_all_halvings(items, weights), rel=1e-9)


def test_a_value_of_five_megabytes_does_not_overflow() -> None:
    columns = encode({"a": ["x" * 5_000_000] * 30, "b": [str(i % 3) for i in range(30)]})
    items, weights = items_of_columns(columns)
    assert worth(weights, sent_by(items, *optimum(items, weights))) == 29 * 25 * 10**12 + 27


def test_too_many_rows_are_refused_by_number() -> None:
    items = np.zeros((1, MOST_ROWS + 1), np.int32)
    with pytest.raises(ConfigError, match=rf"{MOST_ROWS + 1} rows; .*at most {MOST_ROWS}.*'tree'"):
        optimum(items, np.ones(1, np.int64))


def test_rows_that_share_too_many_sets_of_values_are_refused() -> None:
    cells = [[str(row) if row == column else "" for column in range(16)] for row in range(16)]
    items = items_of(cells, range(16))
    most = lattice.MOST_SETS
    with pytest.raises(ConfigError, match=rf"too complex .*more than {most} .*'tree'"):
        optimum(items, np.ones(items.max() + 1, np.int64))


def test_a_search_beyond_its_budget_is_given_up_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items, weights = random_problem(seed=9, rows=20, columns=8)
    optimum(items, weights)
    with pytest.raises(ConfigError, match=r"too complex for an exact search.*'tree'"):
        optimum(items, weights, most_arcs=1000)
    monkeypatch.setattr(search, "MOST_DEPTH", 0)
    with pytest.raises(ConfigError, match=r"too complex for an exact search.*'tree'"):
        optimum(items, weights)


@pytest.mark.parametrize("seconds", [0.1, 0.11, 0.12, 0.13, 0.14])
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
def test_ten_beers_are_worth_what_the_best_halving_is() -> None:
    items, weights = items_of_columns(encode(first_rows("beer/beer.csv", 10)))
    sent = sent_by(items, *optimum(items, weights))
    assert worth(weights, sent) == best_of_all_halvings(items, weights) == 2983


@pytest.mark.data
def test_ten_questions_with_a_bag_of_passages_are_worth_what_the_best_halving_is() -> None:
    table = first_rows("squad/squad_rag5.parquet", 10)
    bags = [name if not name.startswith("context") else "context" for name in table.column_names]
    cells = list(zip(*table.to_pydict().values(), strict=True))
    items = items_of(cells, [bags.index(bag) for bag in bags])
    weights = np.zeros(items.max() + 1, np.int64)
    weights[items] = [[len(cell) ** 2 for cell in row] for row in zip(*cells, strict=True)]
    sent = sent_by(items, *optimum(items, weights))
    assert worth(weights, sent) == best_of_all_halvings(items, weights)


@pytest.mark.data
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
