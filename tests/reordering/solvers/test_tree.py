"""`tree`: never below another method under the weight, and above it on what it is made for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relquery._native import Trie
from relquery.arrays import Int32s, Int64s
from relquery.config import Order
from relquery.reordering.cost.measure import hits
from relquery.reordering.cost.meter import Weight
from relquery.reordering.cost.tokens import Encode
from relquery.reordering.encode import encode
from relquery.reordering.items import Items, itemize
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import ScheduleReport
from relquery.reordering.solvers.problem import (
    PAPER_LIMITS,
    Objective,
    Problem,
    StoppedError,
    fixed,
    ggr,
    pose,
    side_by_side,
)
from relquery.reordering.solvers.tree import (
    REACHES,
    Texts,
    arrange,
    find_twins,
    look_ahead,
    texts_of,
)
from tests.reordering import reference
from tests.reordering.solvers.problems import (
    Structure,
    new_trie,
    random_problem,
    sequences,
    worth_of,
)
from tests.reordering.strategies import PAID, TEXTS, WEIGHTS, letters, tables

PASSAGES = [
    *("a", "bb", "ccc", "dddd", "eeeee", "ffffff", "a long passage of words"),
    *("another long passage", "tower", "river bank", "x" * 20, "y" * 12, "words " * 4, "more " * 3),
]
OTHERS: tuple[Order, ...] = ("original", "fixed", "ggr")


def pairs(texts: list[str]) -> list[list[int]]:
    """A tokenizer whose tokens reach across the ends of fields."""
    return [[sum(map(ord, text[i : i + 2])) for i in range(0, len(text), 2)] for text in texts]


def figure(report: ScheduleReport, weight: Weight) -> float:
    """What the weight asks to be high."""
    if report.bill is not None:
        return -report.bill.usd
    if weight == "squared":
        return report.phc
    return report.phr if report.tokens is None else report.tokens.unlimited


@given(
    tables(bags=True) | tables(bags=True, of=TEXTS),
    st.sampled_from([*WEIGHTS, "tokens"]),
    st.sampled_from([None, letters, pairs]),
    st.sampled_from([None, 0, 0.001]),
)
def test_no_other_method_is_above_it_under_the_weight(
    table: reference.Table, weight: Weight, tokenizer: Encode | None, seconds: float | None
) -> None:
    solve: Any = partial(reorder, table.columns, dependencies=table.dependencies, bags=table.bags)
    solve = partial(solve, weight=weight, tokenizer=tokenizer)
    others = [figure(solve(method=method).report, weight) for method in OTHERS]
    tree = solve() if seconds is None else solve(seconds=seconds)
    assert figure(tree.report, weight) >= max(others) - 1e-12


def six_rows(seed: int) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Few texts of very different lengths, and a bag of two columns or more."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(2, 6))
    bag = int(rng.integers(2, columns + 1))
    pool = rng.choice(PASSAGES, int(rng.integers(2, 7)), replace=False)
    data = {f"c{k}": [str(pool[i]) for i in rng.integers(0, len(pool), 6)] for k in range(columns)}
    return data, [list(data)[:bag]]


@pytest.mark.parametrize("weight", ["tokens", "squared"])
@pytest.mark.parametrize(
    "seeds", [[759, 520, 26], pytest.param(range(1000, 1100), marks=pytest.mark.long)]
)
def test_six_rows_with_a_bag_are_ordered_no_worse_than_by_any_other_method(
    seeds: Sequence[int], weight: Weight
) -> None:
    for data, bags in map(six_rows, seeds):
        columns = encode(data)
        tree, *others = (
            figure(reorder(columns, method, bags=bags, weight=weight).report, weight)
            for method in ("tree", *OTHERS)
        )
        assert tree >= max(others)


def test_columns_that_suit_few_rows_are_chosen_for_those_alone() -> None:
    # half of the rows share what stands in "left", half what stands in "right"
    rng = np.random.default_rng(0)
    rows = range(200)
    data = {
        "left": [f"left {i % 10} " * 9 if i % 2 else f"{rng.random()}" * 3 for i in rows],
        "right": [f"{rng.random()}" * 3 if i % 2 else f"right {i % 10} " * 9 for i in rows],
    }
    schedule = reorder(encode(data))
    for row, fields in zip(schedule.rows, schedule.fields.tolist(), strict=True):
        assert fields == ([0, 1] if row % 2 else [1, 0])
    assert schedule.report.phr > 1.5 * reorder(encode(data), "fixed").report.phr


def test_texts_that_only_begin_alike_stand_together() -> None:
    rng = np.random.default_rng(0)
    days = [f"2026-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29)]
    shuffled = list(map(str, rng.permutation(days)))
    ids = [f"{i * 7919 % 997:04}" for i in range(len(days))]
    schedule = reorder(encode({"day": shuffled, "id": ids}))
    assert [shuffled[row] for row in schedule.rows] == sorted(days)


def test_a_group_of_two_is_formed_where_it_pays_for_the_write_and_not_where_it_does_not() -> None:
    # pairs share a long text, or four rows share a shorter one: never both
    data = {
        "pair": [f"{i // 2} " + "words and more words " * 12 for i in range(8)],
        "four": [f"{i % 2} " + "some words " * 5 for i in range(8)],
    }
    cheap, dear = (
        reorder(encode(data), weight=replace(PAID, write=write)) for write in (1.25, 1.95)
    )
    assert set(cheap.fields[:, 0].tolist()) == {0}
    assert set(dear.fields[:, 0].tolist()) == {1}


def test_a_search_that_is_stopped_gives_nothing() -> None:
    problem = random_problem(0, 40, 4, 6)
    problem.stopped[0] = True
    for search in (
        partial(fixed, problem),
        partial(ggr, problem, PAPER_LIMITS),
        partial(look_ahead, problem, Objective(), REACHES[0]),
        partial(plant_and_arrange, problem),
    ):
        with pytest.raises(StoppedError):
            search()


def plant_and_arrange(problem: Problem) -> None:
    rows = problem.items.shape[1]
    trie = new_trie(problem)
    trie.plant(np.arange(rows), problem.places.T.copy(), problem.items)
    nothing = np.zeros(len(problem.weights), np.int64)
    texts = Texts(nothing.astype(np.int32), nothing, nothing[None], nothing.astype(np.int32))
    arrange(trie, texts, problem.items, problem.stopped)


def test_what_breaks_off_the_waiting_thread_stops_the_others() -> None:
    stopped = np.zeros(1, np.bool_)

    def work() -> None:
        while not stopped[0]:
            time.sleep(0.001)

    def fail() -> None:
        raise ValueError("its own fault")

    with pytest.raises(ValueError, match="its own fault"):
        side_by_side([fail, work, work], stopped, 1 << 20)


TOWNS = ["Aarau", "Aachen", "Bern", "Berlin", "Bergen", "Basel", "Bath", "Cork", "Como", "Cologne"]


def grown(items: Items) -> tuple[Problem, Trie]:
    slots = len(items.slots)
    problem = pose(items.slots, items.bags, items.characters, np.eye(slots, dtype=np.bool_))
    trie = new_trie(problem)
    trie.insert_all(np.arange(problem.items.shape[1]), 10**9)
    return problem, trie


def arranged(items: Items, problem: Problem, trie: Trie) -> tuple[Int64s, Int32s]:
    return arrange(trie, texts_of(items), items.slots, problem.stopped)


def siblings_share(trie: Trie) -> bool:
    """Whether an item is in the labels of two children of one node."""
    it, seen = Structure.of(trie), set()
    for node, parent in enumerate(it.parent.tolist()):
        if parent >= 0:
            for item in it.label_of(node).tolist():
                if (parent, item) in seen:
                    return True
                seen.add((parent, item))
    return False


@given(tables(bags=True))
def test_rows_of_a_node_stand_together_and_nothing_is_lost(table: reference.Table) -> None:
    if not table.classes or not table.cells:
        return
    items = itemize(table.columns, table.bags)
    problem, trie = grown(items)
    least = Structure.of(trie).worth(problem.weights)
    rows, fields = arranged(items, problem, trie)
    sent = sequences(items.same[items.slots], rows, fields)
    assert worth_of(Objective(), items.characters, sent) >= least


@given(tables(bags=True))
@example(reference.Table([["ccc", "bb"], ["bb", "bb"], ["bb", "bbb"]], [0, 0], [0, 1]))
def test_the_previous_row_hits_as_much_as_any_earlier_row_does(table: reference.Table) -> None:
    if not table.classes or not table.cells:
        return
    items = itemize(table.columns, table.bags)
    problem, trie = grown(items)
    if siblings_share(trie):
        return
    rows, fields = arranged(items, problem, trie)
    sent = [(row, fields[row].tolist()) for row in rows.tolist()]
    of_previous = reference.hit_rate(table, sent, window=1)
    assert of_previous == pytest.approx(reference.hit_rate(table, sent))
    assert of_previous == pytest.approx(hits(items, rows, fields[rows]).rate)


def test_siblings_begin_with_the_column_that_agrees_most_in_alphabetical_order() -> None:
    few = ["Bern"] * 3 + ["Berlin"] * 3 + ["Bergen"]  # only few siblings have "number" left
    for key, towns in (
        ([f"{i}{town}" for i, town in enumerate(TOWNS)], TOWNS),
        ([f"{i}" for i in range(7)], few),
    ):
        items = itemize(encode({"key": key, "town": towns}))
        rows, fields = arranged(items, *grown(items))
        assert fields[:, 0].tolist() == [1] * len(towns)
        assert [towns[row] for row in rows] == sorted(towns)


def test_both_copies_of_a_passage_are_sent() -> None:
    data = {"p": ["same", "same"], "q": ["same", "same"], "r": ["other", "same"]}
    items = itemize(encode(data), [["p", "q", "r"]])
    rows, fields = arranged(items, *grown(items))
    sequences(items.slots, rows, fields)
    assert hits(items, rows, fields[rows]).hit == 2 * len("passage: same") + len("passage: ")


TABLE = {
    "id": ["7", "8", "7", "9"],
    "text": ["a", "b", "c", "d"],
    "name": ["film one", "film two", "film one", "film three"],
    "year": ["1999", "1999", "1999", "2000"],
}


def test_columns_with_equal_codes_are_grouped_and_the_most_alike_goes_first() -> None:
    assert find_twins(itemize(encode(TABLE))).members == ((2, 0), (1,), (3,))


def test_a_dependency_that_one_row_breaks_groups_nothing() -> None:
    broken = TABLE | {"id": ["7", "8", "9", "9"]}
    assert not find_twins(itemize(encode(broken))).any


def test_columns_of_a_bag_stay_alone() -> None:
    items = itemize(encode(TABLE), [["id", "name"]])
    assert not find_twins(items).any


def test_twins_weigh_together_and_are_sent_side_by_side() -> None:
    items = itemize(encode(TABLE))
    twins = find_twins(items)
    weights = twins.weigh(items, items.characters)
    both = items.characters[items.slots[2]] + items.characters[items.slots[0]]
    assert weights[items.slots[2]].tolist() == both.tolist()
    fields = twins.expand(np.array([[0, 2, 1], [1, 0, 2]], np.int32))
    assert fields.tolist() == [[2, 0, 3, 1], [1, 2, 0, 3]]
