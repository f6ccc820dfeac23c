"""From a trie to a schedule: nothing is lost, and texts that begin alike stand together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given

from relquery._native import Trie
from relquery.arrays import Int32s, Int64s
from relquery.reordering.cost.measure import hits
from relquery.reordering.encode import encode
from relquery.reordering.items import Items, itemize
from relquery.reordering.solvers.problem import Objective, Problem, pose
from relquery.reordering.solvers.tree import arrange, texts_of
from tests.reordering import reference
from tests.reordering.solvers.problems import Structure, new_trie, sequences, worth_of
from tests.reordering.strategies import tables

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
