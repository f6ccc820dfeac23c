"""What every schedule keeps, and what each solver promises."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table import reference
from tests.table.strategies import columns_of, dependencies_of, names_of, tables

from relquery.config import ORDERS, Order
from relquery.errors import ConfigError, UnknownColumnError
from relquery.table.columns import encode
from relquery.table.reorder import Schedule, reorder

LIMITS = st.sampled_from([{}, {"threshold": 5}, {"threshold": None}, {"row_depth": 0}])


def sent_by(schedule: Schedule) -> reference.Sent:
    return [
        (int(row), [int(field) for field in fields])
        for row, fields in zip(schedule.rows, schedule.fields, strict=True)
    ]


@settings(deadline=None)
@given(tables(), st.sampled_from(ORDERS), LIMITS)
def test_a_schedule_sends_every_cell_of_every_row_once(
    table: reference.Table, method: Order, limits: dict[str, int | None]
) -> None:
    options = limits if method == "ggr" else {}
    schedule = reorder(columns_of(table), method, dependencies_of(table), **options)
    rows, columns = len(table.cells), len(table.classes)
    assert sorted(schedule.rows) == list(range(rows))
    assert schedule.fields.shape == (rows, columns)
    assert all(sorted(fields) == list(range(columns)) for fields in schedule.fields)


@settings(deadline=None)
@given(tables(), st.sampled_from(ORDERS))
def test_the_report_measures_what_is_sent(table: reference.Table, method: Order) -> None:
    schedule = reorder(columns_of(table), method, dependencies_of(table))
    sent = sent_by(schedule)
    assert schedule.report.method == method
    assert schedule.report.phc == reference.hits(table, sent)
    assert schedule.report.phr == pytest.approx(reference.hit_rate(table, names_of(table), sent))


@settings(deadline=None)
@given(tables())
def test_ggr_without_early_stopping_is_algorithm_1(table: reference.Table) -> None:
    schedule = reorder(
        columns_of(table), "ggr", dependencies_of(table), row_depth=None, column_depth=None
    )
    rows, columns = list(range(len(table.cells))), list(range(len(table.classes)))
    _, sent = reference.ggr(table, rows, columns)
    assert schedule.report.phc == reference.hits(table, sent)


@settings(deadline=None)
@given(tables())
def test_algorithm_1_counts_the_hits_that_its_schedule_has(table: reference.Table) -> None:
    alone = reference.Table(table.cells, range(len(table.classes)))
    rows, columns = list(range(len(table.cells))), list(range(len(table.classes)))
    count, sent = reference.ggr(alone, rows, columns)
    assert count == reference.hits(alone, sent)


@settings(deadline=None, max_examples=30)
@given(tables(max_rows=4, max_columns=3), st.sampled_from(ORDERS))
def test_no_solver_beats_the_optimum(table: reference.Table, method: Order) -> None:
    report = reorder(columns_of(table), method, dependencies_of(table)).report
    assert report.phc <= reference.best_hits(table)


@settings(deadline=None)
@given(tables(), st.sampled_from(ORDERS), LIMITS)
def test_the_same_table_gives_the_same_schedule(
    table: reference.Table, method: Order, limits: dict[str, int | None]
) -> None:
    options = limits if method == "ggr" else {}
    first, second = (
        reorder(columns_of(table), method, dependencies_of(table), **options) for _ in range(2)
    )
    assert np.array_equal(first.rows, second.rows)
    assert np.array_equal(first.fields, second.fields)


@pytest.mark.parametrize("method", ["fixed", "ggr"])
def test_columns_that_determine_one_another_are_sent_side_by_side(method: Order) -> None:
    numbers = range(60)
    data = {
        "id": [str(i % 7) for i in numbers],
        "text": [f"unique {i}" for i in numbers],
        "group": [str(i % 4) for i in numbers],
        "name": [f"name of {i % 7}" for i in numbers],
    }
    schedule = (
        reorder(encode(data), method, [("id", "name")], threshold=10)
        if (method == "ggr")
        else reorder(encode(data), method, [("id", "name")])
    )
    for fields in schedule.fields.tolist():
        assert abs(fields.index(0) - fields.index(3)) == 1


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


def test_a_dependency_that_does_not_hold_costs_no_hits_inside_its_groups() -> None:
    table = reference.Table([["k" * 9, str(i), "same" * 5] for i in range(6)], [0, 0, 1])
    schedule = reorder(
        columns_of(table), "ggr", dependencies_of(table), row_depth=None, column_depth=None
    )
    assert schedule.report.phc == 5 * (9**2 + 20**2)


def test_rows_of_one_group_share_their_leading_fields() -> None:
    data = {
        "review": [f"review number {i}" for i in range(8)],
        "film": ["Alien", "Brazil"] * 4,
    }
    schedule = reorder(encode(data), "ggr")
    films = [data["film"][row] for row in schedule.rows]
    assert schedule.fields[:, 0].tolist() == [1] * 8
    assert sum(a != b for a, b in pairwise(films)) == 1


@pytest.mark.parametrize("method", ORDERS)
@pytest.mark.parametrize(
    "data",
    [
        pa.table({}),
        pa.table({"a": pa.array([], pa.string())}),
        pa.table({"a": ["x"]}),
        pa.table({"a": ["x", "x", None]}),
        pa.table([["1", "2"], ["1", "2"]], names=["a", "a"]),
        pa.table({"a": pa.nulls(3), "b": pa.nulls(3)}),
        pa.table({"a": ["same"] * 5, "b": ["same"] * 5}),
        pa.table({"a": ["x" * 5_000_000, "x" * 5_000_000, "y"]}),
    ],
    ids=["empty", "no rows", "one row", "one column", "same name", "NULL", "equal", "large"],
)
def test_tables_at_the_edge_are_ordered_too(method: Order, data: pa.Table) -> None:
    schedule = reorder(encode(data), method)
    assert sorted(schedule.rows) == list(range(data.num_rows))
    assert schedule.fields.shape == (data.num_rows, data.num_columns)
    assert 0 <= schedule.report.phr <= 1


def test_many_columns_are_ordered_in_seconds() -> None:
    rng = np.random.default_rng(0)
    table = pa.table(
        [rng.integers(0, 1 + i % 50, 300) for i in range(2000)], list(map(str, range(2000)))
    )
    report = reorder(encode(table), "ggr").report
    assert report.seconds < 20
    assert report.phr > reorder(encode(table), "original").report.phr


def test_an_unknown_column_in_a_dependency_names_the_nearest() -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'title'"):
        reorder(encode({"title": ["a"], "year": ["b"]}), "ggr", [("titel", "year")])


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("gggr", {}, "Did you mean 'ggr'"),
        ("ggr", {"row_dept": 3}, "Did you mean 'row_depth'"),
        ("ggr", {"row_depth": -1}, "must not be negative"),
        ("fixed", {"row_depth": 3}, "not an option of fixed"),
    ],
)
def test_wrong_settings_are_refused(method: Order, options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reorder(encode({"a": ["x", "y"]}), method, **options)


def test_the_report_takes_its_seconds_from_the_clock_handed_in() -> None:
    ticks = iter([10.0, 12.5])
    report = reorder(encode({"a": ["x", "y"]}), "ggr", clock=lambda: next(ticks)).report
    assert report.seconds == 2.5
