"""The order in which the calls of a part of a SELECT are asked, by what each costs, and for which
rows.

LLM(a) = 'x' OR LLM(b) = 'y'
=> LLM(a) for all rows, then LLM(b) where LLM(a) = 'x' is not true; or the other way round

A call costs prompt tokens per row, as far as its inputs and the answers so far tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Protocol

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.prices.table import known_price
from relquery.prompt import Compared
from relquery.sql import names as ours
from relquery.sql.executor.choices import Seen
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.rows import Rows
from relquery.sql.inputs.prompt import SYSTEM
from relquery.sql.parser import build
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.checks import Check, answers_in
from relquery.sql.planner.guards import guard
from relquery.sql.planner.plan import CallGroup, PlannedCall


@dataclass(frozen=True, slots=True)
class CallStep:
    """A call to ask. where: for the rows in which this is true; None for all. checks: those that
    can be decided once it is answered.
    """

    call: int
    where: Expression | None
    checks: tuple[Check, ...]


class Costs(Protocol):
    """The knowledge about calls by which they are put in order."""

    def of(self, call: int) -> float:
        """What a call costs per row."""

    def share(self, condition: Expression, call: int) -> float:
        """In which share of the rows a condition holds once a call is answered."""


_Cost = Callable[[int], float]
_Share = Callable[[Expression, int], float]


def steps_of(
    part: CallGroup, inner: Mapping[int, frozenset[int]], costs: Costs | None
) -> tuple[CallStep, ...]:
    """The calls of a part in the order in which they are asked; as written without costs.

    inner: for each call, the calls whose answers are its fields. A condition counts where all of
    its calls are asked before: so each call is skipped only for a reason that is known by then.
    """
    answers = cache(lambda holds: frozenset(answers_in(holds)))
    cached = None if costs is None else (cache(costs.of), cache(costs.share))
    order = _Order(part, inner, cached, answers)
    steps, left, known = list[CallStep](), list(part.calls), frozenset[int]()
    while left:
        call = order.next(left, known)
        left.remove(call)
        checks = (
            check for check in part.checks if call in check.needs and check.needs.isdisjoint(left)
        )
        steps.append(CallStep(call, order.where(call, known), tuple(checks)))
        known |= {call}
    return tuple(steps)


def has_sides(part: CallGroup) -> bool:
    """Whether answers can show that another order of the calls is better."""
    return any(
        condition.is_side
        for places in part.places.values()
        for place in places
        for condition in place
    )


@dataclass(frozen=True, slots=True)
class _Order:
    """The search for an order of a part's calls. costs: `of` and `share` of Costs. answers: the
    calls whose answers a condition reads. Each is found out once."""

    part: CallGroup
    inner: Mapping[int, frozenset[int]]
    costs: tuple[_Cost, _Share] | None
    answers: Callable[[Expression], frozenset[int]]

    def next(self, left: Sequence[int], known: frozenset[int]) -> int:
        """As written, except that the better side of an AND or OR goes first. left: the calls that
        are not among the known ones."""
        ready = [call for call in left if self.inner[call].isdisjoint(left)]
        free = [call for call in ready if self._around(call, is_side=False).isdisjoint(left)]
        first, *others = free or ready
        beside = self._around(first, is_side=True) if others else frozenset()
        rivals = [first, *(call for call in others if call in beside)]
        if self.costs is None or len(rivals) == 1:
            return first
        cost, share = self.costs
        return min(rivals, key=lambda call: self._cost_of_all(call, rivals, known, cost, share))

    def where(self, call: int, known: frozenset[int]) -> Expression | None:
        """The condition for a call to be asked, given that some are answered."""
        guards = []
        for place in self.part.places.get(call, ()):
            where = guard(
                [condition.holds for condition in place if known >= self.answers(condition.holds)]
            )
            if where is None:
                return None
            guards.append(where)
        return build.any_of(guards) if guards else None

    def _cost_of_all(
        self, first: int, rivals: Sequence[int], done: frozenset[int], cost: _Cost, share: _Share
    ) -> float:
        """What some calls cost together if one goes first, and others only where they are read."""
        known, total = done | {first}, cost(first)
        for call in (rival for rival in rivals if rival != first):
            most = 0.0  # the share of rows in which it is read at one of its places
            for place in self.part.places.get(call, ()):
                decided = (
                    condition.holds
                    for condition in place
                    if first in self.answers(condition.holds) <= known
                )
                most = max(most, prod(share(condition, first) for condition in decided))
            total += cost(call) * most
        return total

    def _around(self, call: int, is_side: bool) -> frozenset[int]:
        """The calls of the conditions around a call: of other sides of ANDs and ORs, or of what
        decides by itself whether it is read.
        """
        conditions = (condition for place in self.part.places.get(call, ()) for condition in place)
        answers = (
            self.answers(condition.holds)
            for condition in conditions
            if condition.is_side == is_side
        )
        return frozenset().union(*answers) - {call}


_CHARACTERS = 4  # per token
_UNPRICED = 10  # models without a price that cost as much as the cheapest with one
_OUTPUT = 4  # prompt tokens that cost as much as a token of an answer, at most providers
_LONG = 32  # tokens of an answer that may be long, before there are any
_COUNTED = 256  # answers whose tokens are counted
_ROWS = 100_000  # rows whose distinct inputs are counted


@dataclass(frozen=True, slots=True)
class CallCosts:
    """The costs of a SELECT's calls, from the answers so far; see Costs."""

    rows: Rows
    left: Int64s

    def of(self, call: int) -> float:
        """The mean cost of a call for the rows that are left."""
        return cost_per_row(self.rows.plan.calls[call], self.rows, self.left)

    def share(self, condition: Expression, call: int) -> float:
        """The share of rows, of those that the call was asked for, in which a condition holds."""
        asked = np.flatnonzero(self.rows.of_call(call).asked)[:_ROWS]
        if not (len(asked) and self.rows.learns):
            return Seen().selectivity
        return Seen(len(asked), len(self.rows.matching(condition, asked))).selectivity


def cost_of(part: CallGroup, rows: Rows, left: Int64s, tried: int) -> float:
    """The mean cost of a filter for each row that is left, in prompt tokens.

    tried: rows that it judged before; how many of them a call was asked for shows how often it is,
    where others may answer before it.
    """
    calls = [rows.plan.calls[call] for call in part.calls]
    asked = (int(rows.of_call(call.index).asked.sum()) for call in calls)
    shares = [min(1.0, (count + 1) / (tried + 1)) for count in asked]
    return sum(
        cost_per_row(call, rows, left) * share for call, share in zip(calls, shares, strict=True)
    )


def cost_per_row(call: PlannedCall, rows: Rows, left: Int64s) -> float:
    """The mean cost of a call for some rows, in prompt tokens.

    Equal inputs are asked once, and inputs that have been asked cost nothing. A request costs what
    the backend counts, or else what its text suggests.
    """
    if not len(left):
        return 0.0
    counted, columns = left[:_ROWS], rows.of_call(call.index)
    inputs, characters = _unanswered(call, rows, counted)
    asked = np.flatnonzero(columns.asked)[:_COUNTED]
    known = [answer for answer in columns.answers[asked] if answer is not None]
    prompt = sum(answer.prompt_tokens for answer in known)
    output = sum(answer.output_tokens for answer in known)
    each = cost_of_text(call, characters)
    if prompt:
        each = float(prompt + _OUTPUT * output) / len(known)
    return inputs / len(counted) * each * rows.weights.get(call.index, 1.0)


def weights_of(calls: Sequence[PlannedCall], context: ExecutionContext) -> dict[int, float]:
    """What a token costs in each call, by its number: none where all of them ask one model.

    A model without a price, as on this machine, counts as a tenth of the cheapest one.
    """
    if not any(call.task.model for call in calls):
        return {}
    models = {call.index: context.of_call(call.task).backend.name for call in calls}
    prices = {name: known_price(name) for name in models.values()}
    known = {name: price.uncached for name, price in prices.items() if price is not None}
    least = min(filter(None, known.values()), default=_UNPRICED) / _UNPRICED
    return {index: known.get(name) or least for index, name in models.items()}


def cost_of_text(call: PlannedCall, characters: float) -> float:
    """What a request costs as its text suggests, in prompt tokens. characters: of its fields."""
    text, sampling = len(SYSTEM) + len(call.prompt) + characters, call.sampling
    is_short = sampling.labels or isinstance(sampling, Compared)
    answer = 1 if is_short else min(_LONG, sampling.max_tokens)
    return text / _CHARACTERS + _OUTPUT * answer


def _unanswered(call: PlannedCall, rows: Rows, some: Int64s) -> tuple[int, float]:
    """How many distinct inputs of a call some rows have that are not answered yet, and the
    mean number of characters in their fields. Counts every row if this cannot be computed.
    """
    asked = rows.of_call(call.index).asked
    known = pa.table({ours.ROW: np.arange(rows.count), ours.ASKED: asked})
    view = rows.scratch.view(known, f"asked_{rows.base}")
    texts = [f"CAST({field.sql} AS VARCHAR)" for field in call.fields] or ["NULL"]
    keys = [ours.field(index) for index in range(len(texts))]
    named = ", ".join(f"{text} AS {key}" for text, key in zip(texts, keys, strict=True))
    size = " + ".join(f"coalesce(length({key}), 0)" for key in keys)
    query = (
        f"SELECT count(*), coalesce(avg({ours.VALUE}), 0) FROM (SELECT {size} AS {ours.VALUE} FROM "
        f"(SELECT {ours.ASKED}, {named} FROM {ours.ROWS} JOIN {view} USING ({ours.ROW})) "
        f"GROUP BY {', '.join(keys)} HAVING NOT bool_or({ours.ASKED}))"
    )
    try:
        table = rows.database.fetch(rows.sql(query, np.union1d(some, np.flatnonzero(asked))))
    except QueryError:  # some rows may never be asked
        return int((~asked[some]).sum()), 0.0
    number, mean = (column[0].as_py() for column in table.columns)
    return number, float(mean)
