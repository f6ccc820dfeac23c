"""`ggr` against Algorithm 1 of paper 000, with its slips corrected."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.reordering.encode import encode
from relquery.reordering.reorder import reorder
from relquery.reordering.solvers.problem import PAPER_LIMITS, Objective, ggr, pose
from relquery.reordering.solvers.tree import REACHES, look_ahead
from tests.reordering import reference
from tests.reordering.solvers.problems import random_problem
from tests.reordering.strategies import rules, tables

LIMITS: list[dict[str, Any]] = [{}, {"threshold": 5}, {"threshold": None}, {"row_depth": 0}]
WHOLE: dict[str, Any] = {"row_depth": None, "column_depth": None}


@given(tables())
def test_without_early_stopping_it_is_algorithm_1(table: reference.Table) -> None:
    schedule = reorder(table.columns, "ggr", table.dependencies, **WHOLE)
    rows, columns = list(range(len(table.cells))), list(range(len(table.classes)))
    _, sent = reference.ggr(table, rows, columns)
    assert schedule.report.phc == reference.hits(table, sent)


@given(tables(bags=True), st.sampled_from(LIMITS), st.data())
def test_limits_and_rules_of_all_kinds_lose_no_cell(
    table: reference.Table, limits: dict[str, Any], data: st.DataObject
) -> None:
    given_rules = data.draw(rules(table))
    schedule = reorder(table.columns, "ggr", given_rules, table.bags, **limits)
    columns = list(range(len(table.classes)))
    assert sorted(schedule.rows) == list(range(len(table.cells)))
    assert all(sorted(fields) == columns for fields in schedule.fields.tolist())
    expected = reference.hit_rate(table, reference.sent_by(schedule))
    assert schedule.report.phr == pytest.approx(expected)


@pytest.mark.parametrize("rule", ["id -> name", ("id", "name"), "id, group -> name"])
def test_what_a_group_determines_is_sent_beside_it(rule: str | tuple[str, ...]) -> None:
    numbers = range(60)
    data = {
        "id": [f"{i % 7} " * 9 for i in numbers],
        "text": [f"unique {i}" for i in numbers],
        "group": ["one group" for _ in numbers],
        "name": [str(i % 7) for i in numbers],
        "other": [str(i % 14) * 8 for i in numbers],
    }
    schedule = reorder(encode(data), "ggr", [rule], **WHOLE)
    for fields in schedule.fields.tolist():
        assert fields.index(3) == fields.index(0) + 1


def test_a_dependency_that_does_not_hold_costs_no_hits_inside_its_groups() -> None:
    table = reference.Table([["k" * 9, str(i), "same" * 5] for i in range(6)], [0, 0, 1])
    schedule = reorder(table.columns, "ggr", table.dependencies, row_depth=None, column_depth=None)
    assert schedule.report.phc == 5 * (9**2 + 20**2)


def test_a_passage_is_a_group_whatever_its_column() -> None:
    data = {
        "p": ["a passage", "x", "y", "a passage"],
        "q": ["1", "a passage", "2", "3"],
        "r": ["4", "5", "a passage", "6"],
    }
    schedule = reorder(encode(data), "ggr", bags=[["p", "q", "r"]])
    assert schedule.report.phc == 3 * len("a passage") ** 2


def test_problems_without_rows_and_arrays_that_would_be_converted() -> None:
    none = np.empty((2, 0), np.int32)
    problem = pose(none, np.arange(2, dtype=np.int32), np.empty(0, np.int64), np.eye(2, dtype=bool))
    for rows, *_ in (ggr(problem, PAPER_LIMITS), look_ahead(problem, Objective(), REACHES[0])):
        assert len(rows) == 0
    problem = random_problem(0, 5, 3, 2)
    with pytest.raises((TypeError, RuntimeError)):
        ggr(problem._replace(weights=problem.weights.astype(np.int32)), PAPER_LIMITS)


@given(tables())
def test_all_rows_have_one_order_of_columns_and_are_sorted_by_it(table: reference.Table) -> None:
    schedule = reorder(table.columns, "fixed", table.dependencies)
    assert len({tuple(fields) for fields in schedule.fields.tolist()}) <= 1
    sent = [
        tuple(table.item(row, field) for field in fields)
        for row, fields in reference.sent_by(schedule)
    ]
    for depth in range(1, len(table.classes) + 1):
        starts = [row[:depth] for row in sent]
        changes = sum(a != b for a, b in pairwise(starts))
        assert changes == max(len(set(starts)) - 1, 0)  # equal beginnings stand together


def test_dependencies_that_overlap_are_one() -> None:
    numbers = range(40)
    data = {
        "a": [str(i % 5) for i in numbers],
        "x": [str(i % 3) * 3 for i in numbers],
        "b": [str(i % 5) * 2 for i in numbers],
        "y": [str(i % 2) * 4 for i in numbers],
        "c": [str(i % 5) * 3 for i in numbers],
    }
    schedule = reorder(encode(data), "fixed", [("a", "b"), ("b", "c")])
    places = sorted(schedule.fields[0].tolist().index(column) for column in (0, 2, 4))
    assert places[2] - places[0] == 2


def test_the_column_with_most_hits_per_prefix_split_comes_first() -> None:
    numbers = range(60)
    data = {
        "unique": [f"a very long text, number {i}" for i in numbers],
        "short": [str(i % 30) for i in numbers],
        "long": [f"ten characters {i % 3}" for i in numbers],
    }
    assert reorder(encode(data), "fixed").fields[0].tolist() == [2, 1, 0]
