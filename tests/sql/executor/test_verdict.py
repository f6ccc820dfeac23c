"""When two answers agree, and what a share of agreeing answers decides."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from relquery.prompt import Answer, Compared, Finish, Sampling
from relquery.reordering.schedule import Schedule, ScheduleReport
from relquery.sql.binder.call import Task
from relquery.sql.executor.dispatch import CacheLookup
from relquery.sql.executor.guard import OrderAgreement, agree, sample
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Output, Shape, StructField, StructOf
from tests.cases import values

TEXT = Task(("ask",))
REPORT = ScheduleReport("tree", "tokens", 0.0, 0, 0.0, ())
NAMED = StructOf(
    (StructField("name", Leaf("VARCHAR"), False), StructField("sum", Leaf("DECIMAL(9, 2)"), False))
)


def said(text: str | None, finish: Finish = Finish.STOP, **more: Any) -> Answer:
    return Answer(text, finish, **more)


def test_texts_agree_but_for_white_space_and_failures_with_failures() -> None:
    for one, other, agreed in [
        (said("a"), said(" a\n"), True),
        (said("a"), said("A"), False),
        (said("a"), said(None, Finish.ERROR, error="late"), False),
        (said(None, Finish.ERROR, error="late"), said("cut", Finish.LENGTH), True),
        (said("a"), said("a", Finish.LENGTH), False),
    ]:
        assert agree(one, other, TEXT) is agree(other, one, TEXT) is agreed, (one, other)


def test_compared_texts_agree_if_the_comparison_has_the_same_result() -> None:
    task = Task(("ask",), Compared.by(Sampling(), ("Yes", "Maybe")))
    for one, other, agreed in [
        ("Yes", "Yes", True), ("Yes", "No", False), ("N", "Not at all", True),
        ("Yes ", "Yes", False),
    ]:  # fmt: skip
        assert agree(said(one), said(other, Finish.DECIDED), task) is agreed, (one, other)


@pytest.mark.parametrize(
    ("shape", "one", "other", "agreed"),
    values(__file__, "agreeing.txt", Leaf=Leaf, ListOf=ListOf, NAMED=NAMED),
)
def test_typed_answers_agree_if_their_values_are_equal(
    shape: Shape, one: Any, other: Any, agreed: bool
) -> None:
    task = Task(("ask",), output=Output(shape))
    first, second = (
        said(json.dumps(value if isinstance(value, dict) else {"answer": value}))
        for value in (one, other)
    )
    assert agree(first, second, task) is agreed


def test_scores_agree_within_a_twentieth_of_their_range() -> None:
    for labels in (("Yes", "No"), ("1", "5")):  # of 1 and 5: 3.00 and 2.84, or 2.76
        task = Task(("ask",), Sampling(labels=labels, scored=True), kind="score")
        half, near, far = (
            said(labels[0], scores={labels[0]: float(np.log(p)), labels[1]: float(np.log(1 - p))})
            for p in (0.50, 0.54, 0.56)
        )
        assert agree(half, near, task)
        assert not agree(half, far, task)


def looked_up(*texts: str) -> CacheLookup:
    known = {row: said(text) for row, text in enumerate(texts)}
    return CacheLookup(np.arange(len(texts)), None, None, known)


def test_an_order_is_pinned_below_the_least_agreement_and_not_at_it() -> None:
    reordered, written = looked_up(*["a"] * 20), looked_up(*["a"] * 19, "b")
    assert not OrderAgreement.of(reordered, written, TEXT, 0.95).is_pinned
    below = OrderAgreement.of(reordered, written, TEXT, 0.96)
    assert (below.is_pinned, below.order) == (True, "pinned: agreement 0.95 of 20")


def test_a_sample_has_rows_whose_fields_moved_in_the_order_to_send_and_is_always_the_same() -> None:
    fields: npt.NDArray[np.int32] = np.tile(np.array([0, 1, 2], np.int32), (100, 1))
    fields[::2] = [2, 0, 1]
    schedule = Schedule(np.arange(100)[::-1], fields, REPORT)

    def sampled(most: int) -> list[int]:
        found = sample(schedule, most)
        assert found is not None
        rows: list[int] = found.rows.tolist()
        return rows

    few = sampled(10)
    assert few == sampled(10) == sorted(few, reverse=True)
    assert len(set(few)) == 10
    assert set(few) <= set(sampled(90)) == set(range(1, 100, 2))
    as_written = Schedule(schedule.rows, np.sort(fields, axis=1), REPORT)
    assert sample(as_written, 10) is None
