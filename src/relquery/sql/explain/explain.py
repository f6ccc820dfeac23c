"""EXPLAIN of a query with LLM calls: what each call would ask and for how many rows.

It goes through the SELECTs as if they were run (see sql.execute.statement), with NULL for all
answers. Rows that have not passed a filter are counted exactly. Rows that a filter may drop are
still counted, so the counts for later stages are upper bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.ledger import has_one_answer, look_up
from relquery.prompt import Compared, Sampling
from relquery.sql.execute.ask import Asker
from relquery.sql.execute.inputs import Inputs, Question
from relquery.sql.execute.prompts import Prompts
from relquery.sql.explain.effort import Effort, answers, effort
from relquery.sql.explain.explanation import ExplainedCall
from relquery.sql.explain.labels import hint
from relquery.sql.explain.rehearse import Rehearsal
from relquery.sql.explain.rows import ForeseenRows
from relquery.sql.plan.fields import Field
from relquery.sql.plan.planner import PlannedCall, SelectPlan
from relquery.sql.read.scopes import Context

_SHOWN = 60  # characters of a prompt


@dataclass(frozen=True, slots=True)
class _Counts:
    """calls, from_ledger: distinct inputs. exact: whether both are. effort: may be unknown."""

    calls: int | None
    from_ledger: int | None
    exact: bool
    effort: Effort | None


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

    def ask(self, name: str, call: PlannedCall, rows: ForeseenRows, wanted: Int64s) -> None:
        """Record what a call would ask."""
        self.rehearsal.ask(name, call, rows, wanted)
        counts = self._counts(call, rows, wanted)
        guard = rows.plan.guards.get(call.index)
        is_known = rows.known.exact and not call.needs and not (guard and rows.is_open(guard))
        asked = len(wanted) if rows.known.held else rows.known.most
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
                order=self.asker.config.order,
                answers=answers(call.sampling, self.asker.backend),
                hint=self._hint(call.sampling),
                modules=modules if has_modules else (),
                plain=() if has_modules else modules,
                effort=counts.effort,
            )
        )

    def final(self, rows: ForeseenRows) -> str:
        """Required by the protocol; its result is not used."""
        return self.rehearsal.final(rows)

    def _counts(self, call: PlannedCall, rows: ForeseenRows, wanted: Int64s) -> _Counts:
        if not rows.known.held and call.fields:
            return _Counts(rows.known.most, None, False, None)
        if any(rows.is_open(part.value) for part in call.fields):
            return _Counts(rows.number_inputs(call, wanted), None, False, None)
        count = len(wanted) if rows.known.held else 1  # rows of a call without fields are all alike
        modules = self.asker.modules(call)
        try:
            cells = rows.cells(call.fields, wanted)
            inputs = Inputs.of(Question("", call.prompt, call.sampling, count, cells, modules))
        except QueryError:  # caused by a row that a filter would have dropped
            return _Counts(len(wanted), None, False, None)
        if rows.known.held:
            rows.note_inputs(call, wanted, inputs.of_row)
        missing, repeats = self._missing(inputs, call.sampling)
        work = effort(missing, call.sampling, self.asker.backend)
        return _Counts(len(missing), inputs.count - len(missing), not repeats, work)

    def _missing(self, inputs: Inputs, sampling: Sampling) -> tuple[Prompts, bool]:
        """The prompts that the ledger cannot answer, and whether it may be able to by then.

        It may if an earlier stage asks the same prompt.
        """
        prompts, ledger = inputs.prompts_as_written(), self.asker.ledger
        if ledger is None or not has_one_answer(sampling):
            return prompts, False
        # Getting the name may open the backend.
        names = self.asker.names if ledger.has_answers else ("",)
        keys, known = look_up(ledger, names, prompts, sampling)
        missing = [at for at in range(len(prompts)) if at not in known]
        new = {keys.whole[at] for at in missing}
        repeats = not self._keys.isdisjoint(new)
        self._keys.update(new)
        return inputs.prompts(np.array(missing, np.int64), None), repeats

    def _hint(self, sampling: Sampling) -> str | None:
        """How to make a decoded call take just one forward pass."""
        backend = self.asker.backend
        if not isinstance(sampling, Compared) or backend.one_pass(sampling) is not False:
            return None
        held = backend.one_pass(replace(sampling, labels=sampling.texts))
        return hint(sampling.texts) if held else None


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
