"""In which order the calls of a part of a SELECT are asked, and for which of its rows each.

LLM(a) = 'x' OR LLM(b) = 'y'
=> LLM(a) for all rows, then LLM(b) where LLM(a) = 'x' is not true; or the other way round
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Protocol

from relquery.sql.parser import build
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.checks import Check, answers_in
from relquery.sql.planner.guards import guard
from relquery.sql.planner.plan import Part


@dataclass(frozen=True, slots=True)
class Step:
    """A call to ask. where: for the rows in which this is true; None for all. checks: those that
    can be decided once it is answered.
    """

    call: int
    where: Expression | None
    checks: tuple[Check, ...]


class Costs(Protocol):
    """What is known about calls when they are put in order."""

    def of(self, call: int) -> float:
        """What a call costs per row."""

    def share(self, condition: Expression, call: int) -> float:
        """In which share of the rows a condition holds once a call is answered."""


def steps_of(part: Part, inner: Mapping[int, frozenset[int]], costs: Costs) -> tuple[Step, ...]:
    """The calls of a part in the order in which they are asked.

    inner: for each call, the calls whose answers are its fields. A condition counts where all of
    its calls are asked before: so each call is skipped only for a reason that is known by then.
    """
    answers = cache(lambda holds: frozenset(answers_in(holds)))
    found = _Order(part, inner, cache(costs.of), cache(costs.share), answers)
    order = found.order()
    return tuple(
        Step(
            call,
            found.where(call, frozenset(order[:at])),
            tuple(
                one
                for one in part.checks
                if call in one.needs and one.needs.isdisjoint(order[at + 1 :])
            ),
        )
        for at, call in enumerate(order)
    )


def has_sides(part: Part) -> bool:
    """Whether answers can show that another order of the calls is better."""
    return any(one.is_side for places in part.places.values() for place in places for one in place)


@dataclass(frozen=True, slots=True)
class _Order:
    """Puts the calls of a part in order. cost, share: see Costs. answers: the calls whose answers
    a condition reads. Each is found out once."""

    part: Part
    inner: Mapping[int, frozenset[int]]
    cost: Callable[[int], float]
    share: Callable[[Expression, int], float]
    answers: Callable[[Expression], frozenset[int]]

    def order(self) -> list[int]:
        """As written, except that the better side of an AND or OR goes first."""
        done: list[int] = []
        left = list(self.part.calls)
        before = {call: self._around(call, is_side=False) for call in left}
        beside = {call: self._around(call, is_side=True) for call in left}
        while left:
            ready = [call for call in left if self.inner[call].isdisjoint(left)]
            free = [call for call in ready if before[call].isdisjoint(left)] or ready
            chosen = free[0]
            rivals = [chosen, *(call for call in free if call in beside[chosen])]
            if len(rivals) > 1:
                known = frozenset(done)
                chosen = min(rivals, key=lambda call: self._cost_of_all(call, rivals, known))
            left.remove(chosen)
            done.append(chosen)
        return done

    def where(self, call: int, known: frozenset[int]) -> Expression | None:
        """The condition for a call to be asked, given that some are answered."""
        guards = []
        for place in self.part.places.get(call, ()):
            where = guard([one.holds for one in place if known >= self.answers(one.holds)])
            if where is None:
                return None
            guards.append(where)
        return build.any_of(guards) if guards else None

    def _cost_of_all(self, first: int, rivals: Sequence[int], done: frozenset[int]) -> float:
        """What some calls cost together if one goes first, and others only where they are read."""
        known, total = done | {first}, self.cost(first)
        for call in (one for one in rivals if one != first):
            most = 0.0  # the share of rows in which it is read at one of its places
            for place in self.part.places.get(call, ()):
                decided = (one.holds for one in place if first in self.answers(one.holds) <= known)
                most = max(most, prod(self.share(one, first) for one in decided))
            total += self.cost(call) * most
        return total

    def _around(self, call: int, is_side: bool) -> frozenset[int]:
        """The calls of the conditions around a call: of other sides of ANDs and ORs, or of what
        decides by itself whether it is read.
        """
        conditions = (one for place in self.part.places.get(call, ()) for one in place)
        found = (self.answers(one.holds) for one in conditions if one.is_side == is_side)
        return frozenset().union(*found) - {call}
