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
    if isinstance(node, Operator) and node.kind == build.NOT:
        yield from _criteria(node.operands[0], not inverted)
    elif (opposite := _compared_with_truth(node)) is not None:
        assert isinstance(node, Comparison)
        yield from _criteria(node.left, inverted != opposite)
    elif (parts := _parts(node)) is None:
        yield Criterion(node, inverted)
    else:
        for part in parts:
            yield from _criteria(part, inverted)


def _compared_with_truth(node: Expression) -> bool | None:
    """Of `x IS [NOT] DISTINCT FROM TRUE`, whether it holds where x does not; None for others."""
    if not isinstance(node, Comparison) or node.kind not in (build.SAME, build.DISTINCT):
        return None
    if not isinstance(node.right, Constant) or node.right.kind != "BOOLEAN":
        return None
    return (node.kind == build.DISTINCT) == (node.right.text == "true")


def _parts(node: Expression) -> Sequence[Expression | None] | None:
    """The conditions that one is made of; None if it is a criterion itself."""
    if isinstance(node, Conjunction):
        return node.operands
    if isinstance(node, Operator) and node.kind in (build.TRY, build.COALESCE):
        return node.operands
    if isinstance(node, Case):
        parts = [part for one in node.branches for part in (one.condition, one.value)]
        return [*parts, node.default]
    return None


class Count(NamedTuple):
    """Rows for which a criterion was decided, and for how many of them it holds; and how many
    distinct inputs these and those have, where that was counted.
    """

    rows: int
    passed: int
    inputs: int = 0
    passing: int = 0


@dataclass(slots=True)
class Tally:
    """Of one criterion: the rows for which it was decided, and those for which it holds.

    judged, holds: (rows,). inverted: whether what holds is its opposite, as the query first asks.
    counts: each time that there were new rows.
    """

    judged: Bools
    holds: Bools
    inverted: bool
    counts: list[Count] = field(default_factory=list)

    @classmethod
    def of(cls, rows: int, inverted: bool) -> Tally:
        """Nothing judged."""
        return cls(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_), inverted)

    def add(self, rows: Int64s, holds: Int64s, inputs: int = 0, passing: int = 0) -> None:
        """Note that some rows were judged, and for which of them it holds; see Count."""
        self.judged[rows] = True
        self.holds[holds] = True
        self.counts.append(Count(len(rows), len(holds), inputs, passing))


@dataclass(slots=True)
class Tallies:
    """Those of the criteria in the predicates of one SELECT, by the text of the criterion."""

    by_text: dict[str, Tally] = field(default_factory=dict)

    def of(self, one: Criterion, rows: Rows) -> Tally:
        """The tally of a criterion."""
        text = one.text
        if text not in self.by_text:
            # The filters say how it is meant; conditions on earlier answers may be opposites.
            meant = {
                found.text: found.inverted
                for each in reversed(rows.plan.filters)
                for found in criteria_in(each.predicate)
            }
            self.by_text[text] = Tally.of(rows.count, meant.get(text, one.inverted))
        return self.by_text[text]

    def new(self, one: Criterion, rows: Rows, among: Int64s) -> Int64s:
        """Those rows whose calls are answered and for which it was not decided before."""
        for call in one.calls:
            among = among[rows.of_call(call).asked[among]]
        return among[~self.of(one, rows).judged[among]]
