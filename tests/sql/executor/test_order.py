"""Calls go in an order in which each is skipped only for reasons that are known by then."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

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
    """A condition in which a and b are the answers of calls."""
    for name, call in (("a", A), ("b", B)):
        sql = sql.replace(f"{name} ", f"{ours.answer(call)} ")
    return Condition(parser().expression(sql), is_side)


A_IS_X, A_IS_Y, B_IS_X = condition("a = 'x'"), condition("a = 'y'"), condition("b = 'x'")
SIDES = {A: [[condition("b <> 'y'", True)]], B: [[condition("a <> 'x'", True)]]}
DECIDES = {A: [[]], B: [[A_IS_X]], C: [[A_IS_Y]]}
TWICE: dict[int, list[list[Condition]]] = {A: [[]], B: [[A_IS_X], [A_IS_Y]]}


@pytest.mark.parametrize(
    ("calls", "places", "costs", "inner", "expected"),
    [
        pytest.param([A, B], SIDES, Fixed(), {}, "A, B where", id="of equal sides the first"),
        pytest.param([A, B], SIDES, Fixed({A: 3.0}), {}, "B, A where", id="the cheaper side"),
        pytest.param([A, B], SIDES, Fixed({A: 1.2}, {A: 0.1, B: 0.9}), {}, "A, B where",
                     id="the dearer side that leaves less"),
        pytest.param([A, B], SIDES, Fixed({}, {A: 0.9, B: 0.1}), {}, "B, A where",
                     id="the side that leaves less"),
        pytest.param([B, C, A], DECIDES, Fixed({A: 100.0}), {}, "A, B where, C where",
                     id="what decides goes before, at any cost"),
        pytest.param([A, B], {A: [[B_IS_X]], B: [[]]}, Fixed(), {B: A}, "A, B",
                     id="an inner call goes before an outer one"),
        pytest.param([A, B], {A: [[B_IS_X]], B: [[A_IS_Y]]}, Fixed(), {}, "A, B where",
                     id="calls that decide about each other are not waited for"),
        pytest.param([A, B], TWICE, Fixed(), {}, "A, B where OR", id="one of two places reads it"),
        pytest.param([A, B], {A: [[]], B: [*TWICE[B], []]}, Fixed(), {}, "A, B",
                     id="a place always reads it"),
    ],
)  # fmt: skip
def test_the_order_of_calls(
    calls: list[int],
    places: dict[int, list[list[Condition]]],
    costs: Fixed,
    inner: dict[int, int],
    expected: str,
) -> None:
    part = CallGroup(tuple(calls), places)
    found = []
    of_calls = {call: frozenset([inner[call]] if call in inner else []) for call in calls}
    for step in steps_of(part, of_calls, costs):
        where = "" if step.where is None else parser().sql(step.where)
        found.append("ABC"[step.call] + " where" * bool(where) + " OR" * where.count(" OR "))
    assert ", ".join(found) == expected
    assert has_sides(part) == (places is SIDES)
