"""What a call costs per row, in prompt tokens, from its inputs and from the answers so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.prompt import Compared
from relquery.sql import names as ours
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
    """What the calls of a SELECT cost, from the answers so far; see planner.asking.Costs."""

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


def cost_of(part: Part, rows: Rows, left: Int64s, tried: int) -> float:
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
    return inputs / len(counted) * each


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
    keys = [ours.field(at) for at in range(len(texts))]
    named = ", ".join(f"{text} AS {key}" for text, key in zip(texts, keys, strict=True))
    size = " + ".join(f"coalesce(length({key}), 0)" for key in keys)
    query = (
        f"SELECT count(*), coalesce(avg({ours.VALUE}), 0) FROM (SELECT {size} AS {ours.VALUE} FROM "
        f"(SELECT {ours.ASKED}, {named} FROM {ours.ROWS} JOIN {view} USING ({ours.ROW})) "
        f"GROUP BY {', '.join(keys)} HAVING NOT bool_or({ours.ASKED}))"
    )
    try:
        found = rows.database.fetch(rows.sql(query, np.union1d(some, np.flatnonzero(asked))))
    except QueryError:  # some rows may never be asked
        return int((~asked[some]).sum()), 0.0
    number, mean = (column[0].as_py() for column in found.columns)
    return number, float(mean)
