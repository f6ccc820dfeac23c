"""What a call costs per row, in prompt tokens, from its inputs and from the answers so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relquery.arrays import Int64s
from relquery.prompt import Answer, Compared, Sampling
from relquery.sql.executor.choices import Seen
from relquery.sql.executor.rows import Rows
from relquery.sql.inputs.prompt import SYSTEM
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.plan import Part, PlannedCall

_CHARACTERS = 4  # per token
_OUTPUT = 4  # prompt tokens that cost as much as a token of an answer, at most providers
_LONG = 32  # tokens of an answer that may be long, before there are any
_COUNTED = 256  # answers whose tokens are counted
_ROWS = 100_000  # rows whose distinct inputs are counted


@dataclass(frozen=True, slots=True)
class CallCosts:
    """What the calls of a SELECT cost, from the answers so far; see plan.asking.Costs."""

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


@dataclass(frozen=True, slots=True)
class EqualCosts:
    """Equal costs for all calls, so that they keep the order in which they are written.

    For stages that ask nothing, where looking up costs would be wasted.
    """

    rows: Rows
    left: Int64s

    def of(self, call: int) -> float:
        """The same for each call."""
        return 1.0

    def share(self, condition: Expression, call: int) -> float:
        """The same for each condition."""
        return 1.0


def cost_of(part: Part, rows: Rows, left: Int64s, tried: int) -> float:
    """The mean cost of a filter for each row that is left, in prompt tokens.

    tried: rows that it judged before; how many of them a call was asked for shows how often it is.
    """
    return sum(
        cost_per_row(rows.plan.calls[call], rows, left) * _share(call, rows, tried)
        for call in part.calls
    )


def cost_per_row(call: PlannedCall, rows: Rows, left: Int64s) -> float:
    """The mean cost of a call for some rows, in prompt tokens.

    Equal inputs are asked once, and inputs that have been asked cost nothing.
    """
    if not len(left):
        return 0.0
    counted = left[:_ROWS]
    inputs, characters = rows.unanswered(call, counted)
    return inputs / len(counted) * _tokens(call, rows, characters)


def _share(call: int, rows: Rows, tried: int) -> float:
    """The share of rows that a call is asked for, where others may answer before it."""
    asked = int(rows.of_call(call).asked.sum())
    return min(1.0, (asked + 1) / (tried + 1))


def _tokens(call: PlannedCall, rows: Rows, characters: float) -> float:
    """What a request costs: as the backend counts it, or else as its text suggests."""
    values = rows.of_call(call.index)
    asked = np.flatnonzero(values.asked)[:_COUNTED]
    known: list[Answer] = [values.answers[row] for row in asked if values.answers[row] is not None]
    prompt = sum(answer.prompt_tokens for answer in known)
    if prompt:
        return (prompt + _OUTPUT * sum(answer.output_tokens for answer in known)) / len(known)
    return cost_of_text(call, characters)


def cost_of_text(call: PlannedCall, characters: float) -> float:
    """What a request costs as its text suggests, in prompt tokens. characters: of its fields."""
    text = len(SYSTEM) + len(call.prompt) + characters
    return text / _CHARACTERS + _OUTPUT * _answer_tokens(call.sampling)


def _answer_tokens(sampling: Sampling) -> int:
    short = sampling.labels or isinstance(sampling, Compared)
    return 1 if short else min(_LONG, sampling.max_tokens)
