"""EXPLAIN of a query with LLM calls: what each call would ask and for how many rows.

It goes through the SELECTs as if they were run (see sql.walk.statement), with NULL for all
answers. Rows that have not passed a filter are counted exactly. Rows that a filter may drop are
still counted, so the counts for later stages are upper bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa
from sqlglot import exp

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.ledger import has_one_answer, look_up
from relquery.prompt import Compared, Prompt, Sampling
from relquery.sql.answers.checks import Check
from relquery.sql.execute.asker import Asker
from relquery.sql.execute.groups import Grouped
from relquery.sql.explain.effort import Effort, answers, effort
from relquery.sql.explain.explanation import ExplainedCall
from relquery.sql.explain.guarded import asked_twice
from relquery.sql.explain.labels import hint
from relquery.sql.explain.rehearse import Rehearsal
from relquery.sql.explain.rows import ForeseenRows
from relquery.sql.inputs.cells import Cells
from relquery.sql.inputs.inputs import Inputs, Question
from relquery.sql.inputs.matches import Matches
from relquery.sql.plan.fields import Field
from relquery.sql.plan.planner import PlannedCall, SelectPlan
from relquery.sql.read.scopes import Context

_SHOWN = 60  # characters of a prompt


@dataclass(frozen=True, slots=True)
class _Counts:
    """calls, from_ledger: distinct inputs. exact: whether both are. effort: may be unknown.

    compared: how many of the calls only serve a guard.
    """

    calls: int | None
    from_ledger: int | None
    exact: bool
    effort: Effort | None
    compared: int = 0


@dataclass(slots=True)
class Foretelling:
    """Describes stages instead of running them; see statement.Stages.

    calls: the calls described so far.
    """

    rehearsal: Rehearsal
    asker: Asker
    calls: list[ExplainedCall] = field(default_factory=list)
    _keys: set[bytes] = field(default_factory=set)

    def rows(self, plan: SelectPlan, context: Context) -> ForeseenRows:
        """Base rows, as far as they are known."""
        return self.rehearsal.rows(plan, context)

    def table(self, rows: ForeseenRows) -> str:
        """A stand-in; see sql.explain.bounds."""
        return self.rehearsal.table(rows)

    def check(
        self, name: str, checks: tuple[Check, ...], rows: ForeseenRows, among: Int64s
    ) -> None:
        """Nothing: there are no answers to check."""

    def cut(self, rows: ForeseenRows) -> None:
        """Drop rows if this is known; else note how many are left at most."""
        self.rehearsal.cut(rows)

    def ask(
        self,
        name: str,
        call: PlannedCall,
        rows: ForeseenRows,
        wanted: Int64s,
        where: exp.Expr | None,
    ) -> None:
        """Record what a call would ask."""
        self.rehearsal.ask(name, call, rows, wanted, where)
        counts = self._counts(call, rows, wanted)
        is_open = bool(call.needs) or (where is not None and rows.is_open(where))
        is_known = rows.known.exact and not is_open and not rows.may_stop
        asked = rows.at_most(len(wanted)) if rows.known.held else rows.known.most
        modules = tuple(call.fields[at].name for at in call.modules)
        has_modules = bool(self.asker.modules(call))
        self.calls.append(
            ExplainedCall(
                stage=name,
                prompt=_short(call.prompt),
                fields=", ".join(map(_shown, call.fields)),
                rows=asked,
                calls=counts.calls,
                from_ledger=counts.from_ledger,
                counts=_in_words(asked, counts.calls, is_known and counts.exact),
                order="pinned" if call.is_pinned else self.asker.config.order,
                answers=answers(call.sampling, self.asker.backend),
                hint=self._hint(call.sampling),
                modules=modules if has_modules else (),
                plain=() if has_modules else modules,
                effort=counts.effort,
                compared=counts.compared,
            )
        )

    def final(self, rows: ForeseenRows) -> str:
        """Required by the protocol; its result is not used."""
        return self.rehearsal.final(rows)

    def _counts(self, call: PlannedCall, rows: ForeseenRows, wanted: Int64s) -> _Counts:
        if not rows.known.held and call.fields:
            return _Counts(rows.known.most, None, False, None)
        if any(rows.is_open(part.value) for part in call.fields):
            return _Counts(rows.at_most(rows.number_inputs(call, wanted)), None, False, None)
        count = len(wanted) if rows.known.held else 1  # rows of a call without fields are all alike
        modules = self.asker.modules(call)
        try:
            cells = rows.cells(call.fields, wanted)
            if call.task.kind == "group":
                return self._of_groups(call, rows, wanted, cells.fetch().column(0))
            if call.task.kind == "match":
                return self._of_matches(call, rows, wanted, cells)
            question = Question("", call.task, count, cells, modules)
            inputs = Inputs.of(question)
        except QueryError:  # caused by a row that a filter would have dropped
            return _Counts(rows.at_most(len(wanted)), None, False, None)
        is_first = call.index not in rows.inputs
        if rows.known.held:
            rows.note_inputs(call, wanted, inputs.of_row)
        prompts = inputs.prompts_as_written()
        places, repeats = self._missing(prompts, call.sampling)
        again, known = places[:0], inputs.count - len(places)
        # A guard compares answers of a call once, where it is first asked.
        if is_first and (twice := asked_twice(question, inputs, self.asker)) is not None:
            places, again, known = twice.inputs, twice.again, twice.known
            repeats |= not twice.exact
        missing: Sequence[Prompt] = inputs.prompts(places, None)
        if (most := rows.at_most(len(missing))) < len(missing):
            missing = sorted(missing, key=_length, reverse=True)[:most]
            known = min(known, most)
        if len(again):
            again = again[: rows.at_most(len(again))]
            missing = [*missing, *inputs.prompts(again, None)]
        work = effort(missing, call.sampling, self.asker.backend)
        return _Counts(len(missing), known, not repeats, work, len(again))

    def _of_groups(
        self, call: PlannedCall, rows: ForeseenRows, wanted: Int64s, lists: pa.ChunkedArray
    ) -> _Counts:
        """The calls about groups. Those that read answers of others are never in the ledger yet."""
        grouped = Grouped.of(call.task, lists, self.asker.backend)
        rows.note_inputs(call, wanted, grouped.of_row)
        forest = grouped.forest
        first = [forest.prompt(at, ()) for at, one in enumerate(forest.trees) if not one.below]
        places, repeats = self._missing(first, call.sampling)
        missing = [first[at] for at in places]
        answer = " and" * call.sampling.max_tokens  # as long as it may be
        later = [
            forest.prompt(at, [answer] * len(one.below))
            for at, one in enumerate(forest.trees)
            if one.below
        ]
        work = effort([*missing, *later], call.sampling, self.asker.backend)
        if later and work.counted_by == "tokenizer":
            work = replace(work, counted_by="sample", refused=None)
        calls = len(missing) + len(later)
        return _Counts(calls, len(first) - len(missing), not repeats, work)

    def _of_matches(
        self, call: PlannedCall, rows: ForeseenRows, wanted: Int64s, cells: Cells
    ) -> _Counts:
        """The calls that each decide about many pairs of rows."""
        matches = Matches.of(call.task, cells, self.asker.backend)
        rows.note_inputs(call, wanted, matches.of_row)
        places, repeats = self._missing(matches.prompts, call.sampling)
        missing = [matches.prompts[at] for at in places]
        work = effort(missing, call.sampling, self.asker.backend)
        return _Counts(len(missing), len(matches.prompts) - len(missing), not repeats, work)

    def _missing(self, prompts: Sequence[Prompt], sampling: Sampling) -> tuple[Int64s, bool]:
        """The places of prompts that the ledger cannot answer, and whether it may be able to later.

        It may if an earlier stage asks the same prompt.
        """
        ledger = self.asker.ledger
        if ledger is None or not has_one_answer(sampling):
            return np.arange(len(prompts)), False
        # Getting the name may open the backend.
        names = self.asker.names if ledger.has_answers else ("",)
        keys, known = look_up(ledger, names, prompts, sampling)
        missing = [at for at in range(len(prompts)) if at not in known]
        new = {keys.whole[at] for at in missing}
        repeats = not self._keys.isdisjoint(new)
        self._keys.update(new)
        return np.array(missing, np.int64), repeats

    def _hint(self, sampling: Sampling) -> str | None:
        """How to make a decoded call take just one forward pass."""
        backend = self.asker.backend
        if not isinstance(sampling, Compared) or backend.one_pass(sampling) is not False:
            return None
        held = backend.one_pass(replace(sampling, labels=sampling.texts))
        return hint(sampling.texts) if held else None


def _length(prompt: Prompt) -> int:
    return sum(len(str(span.content)) for span in prompt)


def _shown(field: Field) -> str:
    return f"MODULE({field.name})" if field.is_module else field.name


def _in_words(
    rows: int | None, calls: int | None, is_exact: bool
) -> Literal["exact", "at most"] | None:
    if rows is None and calls is None:
        return None
    return "exact" if is_exact else "at most"


def _short(prompt: str) -> str:
    text = " ".join(prompt.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
