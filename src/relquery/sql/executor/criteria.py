"""The criteria over answers that a predicate is made of, and for how many rows each holds.

LLM(a) = 'x' OR NOT (stars > 3 AND LLM(b) = 'y')  =>  LLM(a) = 'x' and LLM(b) = 'y'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from relquery.arrays import Bools, Int64s
from relquery.sql.executor.rows import Rows
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Case,
    Comparison,
    Conjunction,
    Constant,
    Expression,
    Node,
    Operator,
)
from relquery.sql.planner.checks import answers_in


@dataclass(frozen=True, slots=True)
class Criterion:
    """A part of a predicate that reads answers and has no AND, OR, NOT or CASE around its parts.

    node: the part. inverted: whether the predicate asks for its opposite.
    """

    node: Expression
    inverted: bool

    @property
    def text(self) -> str:
        """What tells the criteria of one SELECT apart."""
        return self.node.key

    @property
    def calls(self) -> tuple[int, ...]:
        """The calls whose answers it reads."""
        return answers_in(self.node)


def criteria_in(predicate: Expression) -> list[Criterion]:
    """The criteria of a predicate over the rows of a plan, each once."""
    found: dict[str, Criterion] = {}
    for one in _criteria(predicate, inverted=False):
        found.setdefault(one.text, one)
    return list(found.values())


def with_columns(predicate: Expression, column: Callable[[str], Expression]) -> Expression:
    """The predicate with columns in place of its criteria. column: that of a criterion's text."""
    holder = Node(predicate=predicate.copy())
    for one in list(_criteria(holder.args["predicate"], inverted=False)):
        one.node.replace(column(one.text))
    found: Expression = holder.args["predicate"]
    found.parent = None
    return found


def _criteria(node: Expression | None, inverted: bool) -> Iterator[Criterion]:
    if node is None or not answers_in(node):
        return
    parts: Sequence[Expression | None]
    match node:
        case Operator(kind=build.NOT):
            parts, inverted = node.operands, not inverted
        case Comparison(
            kind=build.SAME | build.DISTINCT, right=Constant(kind="BOOLEAN", text=text)
        ):
            # x IS NOT DISTINCT FROM TRUE holds where x does.
            parts, inverted = (
                [node.left],
                inverted != ((node.kind == build.DISTINCT) == (text == "true")),
            )
        case Conjunction() | Operator(kind=build.TRY | build.COALESCE):
            parts = node.operands
        case Case():
            parts = [part for one in node.branches for part in (one.condition, one.value)]
            parts = [*parts, node.default]
        case _:
            yield Criterion(node, inverted)
            return
    for part in parts:
        yield from _criteria(part, inverted)


class Count(NamedTuple):
    """Rows for which a criterion was decided, and for how many of them it holds."""

    rows: int
    passed: int


@dataclass(slots=True)
class Tally:
    """Of one criterion: the rows for which it was decided, and those for which it holds.

    judged, holds: (rows,). inverted: whether what holds is its opposite, as the query first asks.
    calls: see Criterion. counts: each time that there were new rows.
    """

    judged: Bools
    holds: Bools
    inverted: bool
    calls: tuple[int, ...]
    counts: list[Count] = field(default_factory=list)

    def add(self, rows: Int64s, holds: Int64s) -> None:
        """Note that some rows were judged, and for which of them it holds."""
        self.judged[rows] = True
        self.holds[holds] = True
        self.counts.append(Count(len(rows), len(holds)))


@dataclass(slots=True)
class Tallies:
    """Those of the criteria in the predicates of one SELECT, by the text of the criterion."""

    by_text: dict[str, Tally] = field(default_factory=dict)

    def of(self, one: Criterion, rows: Rows) -> Tally:
        """The tally of a criterion."""
        if one.text not in self.by_text:
            # The filters say how it is meant; conditions on earlier answers may be opposites.
            meant = (each for part in rows.plan.filters for each in criteria_in(part.predicate))
            inverted = next(
                (each.inverted for each in meant if each.text == one.text), one.inverted
            )
            judged, holds = np.zeros((2, rows.count), np.bool_)
            self.by_text[one.text] = Tally(judged, holds, inverted, one.calls)
        return self.by_text[one.text]

    def new(self, one: Criterion, rows: Rows, among: Int64s) -> Int64s:
        """Those rows whose calls are answered and for which it was not decided before."""
        for call in one.calls:
            among = among[rows.of_call(call).asked[among]]
        return among[~self.of(one, rows).judged[among]]
