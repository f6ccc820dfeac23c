"""Calls go in an order in which each is skipped only for reasons that are known by then."""

from __future__ import annotations

from dataclasses import dataclass, field

from relquery.sql import names as ours
from relquery.sql.executor.order import has_sides, steps_of
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.guards import Condition
from relquery.sql.planner.plan import CallGroup

A, B, C = 0, 1, 2


@dataclass
class Fixed:
    """costs: by call. shares: of the rows in which the other side is read after a call."""

    costs: dict[int, float] = field(default_factory=dict)
    shares: dict[int, float] = field(default_factory=dict)

    def of(self, call: int) -> float:
        return self.costs.get(call, 1.0)

    def share(self, condition: Expression, call: int) -> float:
        return self.shares.get(call, 0.5)


def condition(sql: str, is_side: bool = False) -> Condition:
    """A condition in which a, b and c are the answers of calls."""
    for name, call in (("a", A), ("b", B), ("c", C)):
        sql = sql.replace(f"{name} ", f"{ours.answer(call)} ")
    return Condition(parser().expression(sql), is_side)


Inner = dict[int, frozenset[int]]


def order(
    part: CallGroup, costs: Fixed | None = None, inner: Inner | None = None
) -> list[tuple[int, bool]]:
    """The calls in order, and whether each is asked for all rows."""
    none: frozenset[int] = frozenset()
    steps = steps_of(part, inner or dict.fromkeys(part.calls, none), costs or Fixed())
    return [(step.call, step.where is None) for step in steps]


EITHER = CallGroup(
    (A, B),
    {A: [[condition("b <> 'y'", True)]], B: [[condition("a <> 'x'", True)]]},
)


def test_of_two_sides_the_one_goes_first_that_costs_less_with_what_it_leaves() -> None:
    for costs, first in [
        (Fixed(), A),
        (Fixed({A: 3.0}), B),
        (Fixed({A: 1.2}, {A: 0.1, B: 0.9}), A),
        (Fixed({}, {A: 0.9, B: 0.1}), B),
    ]:
        assert order(EITHER, costs) == [(first, True), (B if first == A else A, False)]
    assert has_sides(EITHER)


def test_what_decides_whether_a_call_is_read_goes_before_it_at_any_cost() -> None:
    case = CallGroup(
        (B, C, A), {A: [[]], B: [[condition("a = 'x'")]], C: [[condition("a <> 'x'")]]}
    )
    assert order(case, Fixed({A: 100.0})) == [(A, True), (B, False), (C, False)]
    assert not has_sides(case)


def test_an_inner_call_goes_before_an_outer_one() -> None:
    part = CallGroup((A, B), {A: [[condition("b = 'x'")]], B: [[]]})
    inner = {A: frozenset(), B: frozenset({A})}
    assert order(part, inner=inner) == [(A, True), (B, True)]


def test_calls_that_decide_about_each_other_are_not_waited_for() -> None:
    part = CallGroup((A, B), {A: [[condition("b = 'x'")]], B: [[condition("a = 'y'")]]})
    assert order(part) == [(A, True), (B, False)]


def test_a_call_read_at_two_places_is_asked_where_one_of_them_reads_it() -> None:
    places = [[condition("a = 'x'")], [condition("a = 'y'")]]
    steps = steps_of(
        CallGroup((A, B), {A: [[]], B: places}), {A: frozenset(), B: frozenset()}, Fixed()
    )
    assert steps[1].where is not None
    assert parser().sql(steps[1].where).count(" OR ") == 1
    everywhere = CallGroup((A, B), {A: [[]], B: [*places, []]})
    assert order(everywhere) == [(A, True), (B, True)]
