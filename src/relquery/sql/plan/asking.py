"""In which order the calls of a part of a SELECT are asked, and for which of its rows each.

LLM(a) = 'x' OR LLM(b) = 'y'
=> LLM(a) for all rows, then LLM(b) where LLM(a) = 'x' is not true; or the other way round
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from relquery.sql.answers.checks import Check, answers_in
from relquery.sql.form.guards import Condition, guard

Places = Mapping[int, Sequence[Sequence[Condition]]]
"""For each call, the conditions of every place that reads it: all of them hold there. Their calls
have been replaced by answer columns."""


@dataclass(frozen=True, slots=True)
class Part:
    """Calls of a SELECT that are asked together. calls: inner ones first. checks: of their answers,
    at the places that read them in this part.
    """

    calls: tuple[int, ...]
    places: Places
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A call to ask. where: for the rows in which this is true; None for all. checks: those that
    can be decided once it is answered.
    """

    call: int
    where: exp.Expr | None
    checks: tuple[Check, ...]


class Costs(Protocol):
    """What is known about calls when they are put in order."""

    def of(self, call: int) -> float:
        """What a call costs per row."""

    def share(self, condition: exp.Expr, call: int) -> float:
        """In which share of the rows a condition holds once a call is answered."""


def steps_of(part: Part, inner: Mapping[int, frozenset[int]], costs: Costs) -> tuple[Step, ...]:
    """The calls of a part in the order in which they are asked.

    inner: for each call, the calls whose answers are its fields. A condition counts where all of
    its calls are asked before: so each call is skipped only for a reason that is known by then.
    """
    order = _order(part, inner, costs)
    return tuple(
        Step(
            call,
            _where(part.places.get(call, ()), frozenset(order[:at])),
            tuple(one for one in part.checks if _is_due(one, call, order[at + 1 :])),
        )
        for at, call in enumerate(order)
    )


def has_sides(part: Part) -> bool:
    """Whether answers can show that another order of the calls is better."""
    return any(_sides(part, call) for call in part.calls)


def _order(part: Part, inner: Mapping[int, frozenset[int]], costs: Costs) -> list[int]:
    """As written, except that the better side of an AND or OR goes first."""
    done: list[int] = []
    left = list(part.calls)
    while left:
        ready = [call for call in left if inner[call].isdisjoint(left)]
        free = [call for call in ready if _before(part, call).isdisjoint(left)] or ready
        sides = [call for call in free if call in _sides(part, free[0])]
        chosen = free[0]
        if sides:
            rivals = [chosen, *sides]
            chosen = min(rivals, key=lambda call: _cost_of_all(call, rivals, part, done, costs))
        left.remove(chosen)
        done.append(chosen)
    return done


def _cost_of_all(
    first: int, rivals: Sequence[int], part: Part, done: Sequence[int], costs: Costs
) -> float:
    """What some calls cost together if one goes first, and the others only where they are read."""
    known = frozenset((*done, first))
    return costs.of(first) + sum(
        costs.of(call) * _share(call, first, part, known, costs) for call in rivals if call != first
    )


def _share(call: int, first: int, part: Part, known: frozenset[int], costs: Costs) -> float:
    """The share of rows in which a call is read at one of its places, after another is answered."""
    most = 0.0
    for place in part.places.get(call, ()):
        read = 1.0
        for one in place:
            calls = answers_in(one.holds)
            if first in calls and known.issuperset(calls):
                read *= costs.share(one.holds, first)
        most = max(most, read)
    return most


def _before(part: Part, call: int) -> frozenset[int]:
    """The calls that decide, by themselves, whether a call is read."""
    return _calls_in(part, call, is_side=False)


def _sides(part: Part, call: int) -> frozenset[int]:
    """The calls on the other sides of the ANDs and ORs around a call."""
    return _calls_in(part, call, is_side=True)


def _calls_in(part: Part, call: int, is_side: bool) -> frozenset[int]:
    conditions = (one for place in part.places.get(call, ()) for one in place)
    found = (answers_in(one.holds) for one in conditions if one.is_side == is_side)
    return frozenset(each for calls in found for each in calls if each != call)


def _where(places: Sequence[Sequence[Condition]], known: frozenset[int]) -> exp.Expr | None:
    guards = []
    for place in places:
        usable = [one.holds for one in place if known.issuperset(answers_in(one.holds))]
        where = guard(usable)
        if where is None:
            return None
        guards.append(where)
    return exp.or_(*guards) if guards else None


def _is_due(check: Check, call: int, later: Sequence[int]) -> bool:
    return call in check.needs and check.needs.isdisjoint(later)
