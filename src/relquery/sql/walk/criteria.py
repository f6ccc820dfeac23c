"""The criteria over answers that a predicate is made of, and for how many rows each holds.

LLM(a) = 'x' OR NOT (stars > 3 AND LLM(b) = 'y')  =>  LLM(a) = 'x' and LLM(b) = 'y'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from sqlglot import exp

from relquery.arrays import Bools, Int64s
from relquery.sql.answers.checks import answers_in
from relquery.sql.execute.rows import Rows
from relquery.sql.read.source import to_sql


@dataclass(frozen=True, slots=True)
class Criterion:
    """A part of a predicate that reads answers and has no AND, OR, NOT or CASE around its parts.

    node: the part. inverted: whether the predicate asks for its opposite.
    """

    node: exp.Expr
    inverted: bool

    @property
    def text(self) -> str:
        """As SQL, which tells the criteria of one SELECT apart."""
        return to_sql(self.node)

    @property
    def calls(self) -> tuple[int, ...]:
        """The calls whose answers it reads."""
        return answers_in(self.node)


def criteria_in(predicate: exp.Expr) -> list[Criterion]:
    """The criteria of a predicate over the rows of a plan, each once."""
    found: dict[str, Criterion] = {}
    for one in _criteria(predicate, inverted=False):
        found.setdefault(one.text, one)
    return list(found.values())


def with_columns(predicate: exp.Expr, column: Callable[[str], exp.Expr]) -> exp.Expr:
    """The predicate with columns in place of its criteria. column: that of a criterion's text."""
    whole = exp.paren(predicate.copy(), copy=False)
    for one in list(_criteria(whole, inverted=False)):
        one.node.replace(column(one.text))
    return whole


def _criteria(node: exp.Expr | None, inverted: bool) -> Iterator[Criterion]:
    if node is None or not answers_in(node):
        return
    match node:
        case exp.Not():
            yield from _criteria(node.this, not inverted)
        case exp.NullSafeEQ() | exp.NullSafeNEQ() if isinstance(node.expression, exp.Boolean):
            opposite = isinstance(node, exp.NullSafeNEQ) == bool(node.expression.this)
            yield from _criteria(node.this, inverted != opposite)
        case _:
            parts = _parts(node)
            if parts is None:
                yield Criterion(node, inverted)
            else:
                for part in parts:
                    yield from _criteria(part, inverted)


def _parts(node: exp.Expr) -> list[exp.Expr | None] | None:
    """The conditions that one is made of; None if it is a criterion itself."""
    match node:
        case exp.And() | exp.Or():
            return [node.this, node.expression]
        case exp.Paren() | exp.Try():
            return [node.this]
        case exp.Coalesce():
            return [node.this, *node.expressions]
        case exp.Case() if node.args.get("this") is None:
            branches = [part for one in node.args["ifs"] for part in (one.this, one.args["true"])]
            return [*branches, node.args.get("default")]
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
