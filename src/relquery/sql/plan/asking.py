"""In which order the calls of a part of a SELECT are asked, and for which of its rows each.

LLM(a) = 'x' OR LLM(b) = 'y'
=> LLM(a) for all rows, then LLM(b) where LLM(a) = 'x' is not true; or the other way round
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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


def steps_of(
    part: Part, inner: Mapping[int, frozenset[int]], cost: Callable[[int], float]
) -> tuple[Step, ...]:
    """The calls of a part in the order in which they are asked.

    inner: for each call, the calls whose answers are its fields. cost: what a call costs per row;
    it decides which side of an AND or OR is asked first. A condition counts where all of its calls
    are asked before: so each call is skipped only for a reason that is known by then.
    """
    order = _order(part, inner, cost)
    return tuple(
        Step(
            call,
            _where(part.places.get(call, ()), frozenset(order[:at])),
            tuple(one for one in part.checks if _is_due(one, call, order[at + 1 :])),
        )
        for at, call in enumerate(order)
    )


def _order(
    part: Part, inner: Mapping[int, frozenset[int]], cost: Callable[[int], float]
) -> list[int]:
    done: list[int] = []
    left = list(part.calls)
    while left:
        ready = [call for call in left if inner[call].isdisjoint(left)]
        free = [call for call in ready if _before(part, call).isdisjoint(left)] or ready
        rivals = _sides(part, free[0]).intersection(free)
        # As written, except that the cheaper side goes first.
        chosen = min((free[0], *sorted(rivals)), key=cost) if rivals else free[0]
        left.remove(chosen)
        done.append(chosen)
    return done


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
