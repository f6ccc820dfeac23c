"""When two answers agree, and what a share of agreeing answers decides."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from relquery.prompt import Answer, Compared, Finish, Sampling
from relquery.sql.execute.guard.verdict import Verdict, agree, sample_of
from relquery.sql.functions.task import Task
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Output, Part, Shape, StructOf, kind_of
from relquery.table.schedule import Report, Schedule

TEXT = Task(("ask",))
REPORT = Report("tree", "tokens", 0.0, 0, 0.0, ())
NAMED = StructOf((Part("name", Leaf("VARCHAR"), False), Part("sum", Leaf("DECIMAL(9, 2)"), False)))


def said(text: str | None, finish: Finish = Finish.STOP, **more: Any) -> Answer:
    return Answer(text, finish, **more)


@pytest.mark.parametrize(
    ("one", "other", "agreed"),
    [
        (said("a"), said(" a\n"), True),
        (said("a"), said("A"), False),
        (said("a"), said(None, Finish.ERROR, error="late"), False),
        (said(None, Finish.ERROR, error="late"), said("cut", Finish.LENGTH), True),
        (said("a"), said("a", Finish.LENGTH), False),
    ],
)
def test_texts_agree_but_for_white_space_and_failures_with_failures(one, other, agreed):
    assert agree(one, other, TEXT) is agree(other, one, TEXT) is agreed


@pytest.mark.parametrize(
    ("one", "other", "agreed"),
    [("Yes", "Yes", True), ("Yes", "No", False), ("N", "Not at all", True), ("Yes ", "Yes", False)],
)
def test_compared_texts_agree_if_the_comparison_has_the_same_result(one, other, agreed):
    task = Task(("ask",), Compared.by(Sampling(), ("Yes", "Maybe")))
    assert agree(said(one), said(other, Finish.DECIDED), task) is agreed


@pytest.mark.parametrize(
    ("shape", "one", "other", "agreed"),
    [
        (Leaf("DECIMAL(9, 2)"), 1.5, "1.50", True),
        (Leaf("DOUBLE"), 1e3, 1000, True),
        (Leaf("INTEGER"), 7, 8, False),
        (Leaf("VARCHAR"), " 7", "7", True),
        (Leaf("VARCHAR"), "7.0", "7", False),
        (ListOf(Leaf("VARCHAR")), ["a", "b"], ["b", "a"], False),
        (ListOf(Leaf("VARCHAR")), ["a"], ["a", "a"], False),
        (ListOf(Leaf("VARCHAR", ("a", "b")), distinct=True), ["a", "b"], ["b", "a"], True),
        (ListOf(Leaf("VARCHAR", ("a", "b")), distinct=True), ["a", "b"], ["b"], False),
        (NAMED, {"name": "x", "sum": 1}, {"sum": 1.0, "name": "x"}, True),
        (NAMED, {"name": "x", "sum": None}, {"name": "x", "sum": 0}, False),
        (NAMED, {"name": None, "sum": None}, {"name": None, "sum": None}, True),
        (Leaf("INTEGER"), "many", 8, False),
        (Leaf("INTEGER"), "many", "few", True),
    ],
)
def test_typed_answers_agree_if_their_values_are_equal(shape: Shape, one, other, agreed):
    task = Task(("ask",), output=Output(shape, kind_of(shape)))
    answers = [said(json.dumps(value if isinstance(value, dict) else {"answer": value}))
               for value in (one, other)]  # fmt: skip
    assert agree(*answers, task) is agreed


@pytest.mark.parametrize(
    ("labels", "one", "other", "agreed"),
    [
        (("Yes", "No"), 0.50, 0.54, True),
        (("Yes", "No"), 0.50, 0.56, False),
        (("1", "5"), 0.50, 0.54, True),  # 3.00 and 2.84; 0.2 is a twentieth of the range
        (("1", "5"), 0.50, 0.56, False),
    ],
)
def test_scores_agree_within_a_twentieth_of_their_range(labels, one, other, agreed):
    task = Task(("ask",), Sampling(labels=labels, scored=True), kind="score")
    answers = [
        said(labels[0], scores={labels[0]: float(np.log(p)), labels[1]: float(np.log(1 - p))})
        for p in (one, other)
    ]
    assert agree(*answers, task) is agreed


def test_an_order_is_pinned_below_the_least_agreement_and_not_at_it():
    pairs = [(said("a"), said("a"))] * 19 + [(said("a"), said("b"))]
    assert not Verdict.of(pairs, TEXT, 0.95).is_pinned
    below = Verdict.of(pairs, TEXT, 0.96)
    assert (below.is_pinned, below.order) == (True, "pinned: agreement 0.95 of 20")


def test_a_sample_has_rows_whose_fields_moved_in_the_order_to_send_and_is_always_the_same():
    fields = np.tile(np.array([0, 1, 2], np.int32), (100, 1))
    fields[::2] = [2, 0, 1]
    schedule = Schedule(np.arange(100)[::-1], fields, REPORT)
    few = sample_of(schedule, 10)
    assert len(set(few.tolist())) == 10
    assert (np.diff(few) > 0).all()
    assert (few % 2 == 0).all()
    assert np.array_equal(sample_of(schedule, 10), few)
    assert sample_of(schedule, 90).tolist() == list(range(0, 100, 2))
    assert len(sample_of(replace_fields(schedule), 10)) == 0


def replace_fields(schedule: Schedule) -> Schedule:
    """With all fields as written."""
    return Schedule(schedule.rows, np.sort(schedule.fields, axis=1), schedule.report)
