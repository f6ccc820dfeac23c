"""Calls whose answers no place reads: they are compared with texts, so that few tokens decide.

WHERE LLM('Positive?', review) = 'Yes'  =>  what does not begin like 'Yes' need not be read on
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import sqlglot
from sqlglot import exp

from relquery.prompt import Compared
from relquery.sql import names as ours
from relquery.sql.plan.planner import PlannedCall, SelectPlan
from relquery.sql.read.source import DIALECT, to_sql

_COMPARISONS = (exp.EQ, exp.NEQ, exp.In)


def note_compared(plan: SelectPlan) -> SelectPlan:
    """The plan with `Compared` sampling for such calls; those held to labels stay as they are."""
    return replace(plan, calls=tuple(_noted(call, plan) for call in plan.calls))


def _noted(call: PlannedCall, plan: SelectPlan) -> PlannedCall:
    texts = () if call.sampling.labels else _texts_of(call, plan)
    return replace(call, sampling=Compared.by(call.sampling, texts)) if texts else call


def _texts_of(call: PlannedCall, plan: SelectPlan) -> tuple[str, ...]:
    """Texts that the answers to a call are compared with, in the order given.

    Empty if some place reads the answer itself. A place that is not seen to compare it counts as
    one: not all that names a column is read as a column by the parser (x.lower(), x -> '$.a').
    """
    name = ours.answer(call.index)
    named = re.compile(rf"\b{name}\b", re.IGNORECASE)
    written = [plan.base, to_sql(plan.final), *plan.guards.values()]
    written += [one.predicate for one in plan.filters]
    written += [part.sql for other in plan.calls for part in other.fields]
    texts: dict[str, None] = {}
    for sql in written:
        places = len(named.findall(sql))
        if places:
            compared = list(_comparisons_with(name, sql))
            if len(compared) < places:
                return ()
            texts |= dict.fromkeys(chain.from_iterable(compared))
    return tuple(texts)


def _comparisons_with(name: str, sql: str) -> Iterator[list[str]]:
    """For each comparison of a column with string literals, these."""
    for column in sqlglot.parse_one(sql, dialect=DIALECT).find_all(exp.Column):
        if column.name == name and (texts := _compared_with(column)):
            yield texts


def _compared_with(column: exp.Column) -> list[str]:
    """The string literals of the comparison that a column is a side of; empty if it is not."""
    node: exp.Expr = column
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    comparison = node.parent
    if not isinstance(comparison, _COMPARISONS) or comparison.args.get("query"):
        return []
    others = [other for other in comparison.iter_expressions() if other is not node]
    if not all(isinstance(other, exp.Literal) and other.is_string for other in others):
        return []
    return [other.name for other in others]
