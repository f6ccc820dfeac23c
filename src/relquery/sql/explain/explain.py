"""EXPLAIN of a query with LLM calls: what each call would ask and for how many rows.

It goes through the SELECTs as if they were run (see executor.execute), with NULL for all
answers. Rows that have not passed a filter are counted exactly. Rows that a filter may drop are
still counted, so the counts for later stages are upper bounds. If it is known which share of the
rows passes, a random part of them goes on, and the counts are what is expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.errors import QueryError
from relquery.ledger import AnswerStore, Keys, has_one_answer, look_up
from relquery.prompt import Answer, Finish, Prompt
from relquery.sql.executor.answered import Asker
from relquery.sql.executor.groups import Grouped
from relquery.sql.executor.stages import run_select
from relquery.sql.explain.bounds import Known as KnownRows
from relquery.sql.explain.bounds import known_rows
from relquery.sql.explain.cost.charges import Charge, Charges
from relquery.sql.explain.cost.estimate import Known
from relquery.sql.explain.cost.lengths import ONE, Range
from relquery.sql.explain.effort import Effort, answers, effort, hint
from relquery.sql.explain.explanation import Counted, ExplainedCall, listed
from relquery.sql.explain.guarded import AskedTwice, asked_twice
from relquery.sql.explain.prefixes import HitRate
from relquery.sql.explain.rows import EstimatedRows
from relquery.sql.explain.selectivities import Selectivities
from relquery.sql.host.database import Database, Scratch
from relquery.sql.inputs.cells import Cells
from relquery.sql.inputs.inputs import Inputs, Question
from relquery.sql.inputs.matches import Matches
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.checks import Check
from relquery.sql.planner.fields import Field
from relquery.sql.planner.plan import PlannedCall, SelectPlan
from relquery.sql.planner.statement import Plan

_SHOWN = 60  # characters of a prompt
_ORDERED = 100_000  # at most this many inputs are put in order
_LEARNED = 256  # answers of the ledger that are learned from
_AT_MOST = Range(0.0, 0.5, 1.0)  # of the calls after a filter of which nothing is known


@dataclass(frozen=True, slots=True)
class _Counts:
    """calls, from_ledger: distinct inputs. exact: whether both are. effort: if known. charge: of
    all calls.

    compared: how many of the calls only serve a guard. skipped: rows that are not asked. asks: what
    is asked.
    """

    calls: int | None
    from_ledger: int | None
    exact: bool
    effort: Effort | None
    charge: Charge = field(default_factory=Charge)
    compared: int = 0
    skipped: int = 0
    asks: _Missing | None = None


class _AskedBy(NamedTuple):
    """A call that asks something, and whether it surely does: the greatest is the best."""

    is_sure: bool
    call: int
    rows: int


_NEVER = _AskedBy(is_sure=False, call=-1, rows=0)


class _Missing(NamedTuple):
    """Prompts to ask. places: theirs. keys: of all. wholes: those of whole answers, where others
    are enough, as they are only compared. may_come: whether an earlier stage may have asked some of
    them. known: how many the ledger answers. learned: some of these, with answers.
    """

    places: Int64s
    keys: Sequence[Hashable]
    wholes: Sequence[Hashable]
    may_come: bool
    known: int
    learned: Known = ()


@dataclass(slots=True)
class Explainer:
    """Describes stages instead of running them; see executor.stages.

    shares: of the rows that pass; None if nothing is known. calls: those described so far, by
    stage. costs: whether to tell what the calls cost in any case; else only where a price is known.
    _asked: what has been asked.
    """

    database: Database
    scratch: Scratch
    asker: Asker
    shares: Selectivities | None = None
    calls: dict[str, ExplainedCall] = field(default_factory=dict)
    costs: bool = False
    kinds: Counter[str] = field(default_factory=Counter)
    _stand_ins: dict[str, KnownRows] = field(default_factory=dict)
    _selects: int = 0
    _stage: str = ""
    _asked: dict[Hashable, _AskedBy] = field(default_factory=dict)
    _compared: set[object] = field(default_factory=set)
    _charges: Charges = field(init=False)

    def __post_init__(self) -> None:
        self._charges = Charges(self.asker.backend, self.costs)

    def run(self, plan: Plan) -> None:
        """Go through the stages of a plan."""
        for select in plan.selects:
            rows = self.rows(select)
            run_select(rows, self, self.kinds)
            if select.table:
                self._stand_ins[select.table] = self._fill(select.table, rows, plan)

    def rows(self, plan: SelectPlan) -> EstimatedRows:
        """Base rows, as far as they are known."""
        rows = EstimatedRows.foresee(plan, self.database, self.scratch, self._stand_ins)
        rows.shares, rows.select = self.shares, self._selects
        self._selects += 1
        return rows

    def _fill(self, table: str, rows: EstimatedRows, plan: Plan) -> KnownRows:
        """Put a stand-in for the rows of a SELECT in its table; see explain.bounds."""
        known = known_rows(rows.plan.final, rows.at_hand, plan.bound.functions)
        sql = rows.final()
        try:
            self.scratch.fill(table, sql if known.held else f"SELECT * FROM ({sql}) WHERE false")
        except QueryError:  # due to rows that a filter would drop, or to NULL for an answer
            self.scratch.fill(table, f"SELECT * FROM {table}")
            known = replace(known, exact=False, held=False)
        return known

    def check(
        self, name: str, checks: tuple[Check, ...], rows: EstimatedRows, among: Int64s
    ) -> None:
        """Nothing: there are no answers to check."""

    def cut(self, rows: EstimatedRows) -> None:
        """Drop rows if this is known; else note how many are left at most."""
        rows.cut()

    def ask(
        self,
        name: str,
        call: PlannedCall,
        rows: EstimatedRows,
        wanted: Int64s,
        where: Expression | None,
    ) -> None:
        """Record what a call would ask."""
        self._stage = name
        rows.stages.setdefault(call.index, name)
        new = wanted if self.shares is None else rows.new_inputs(call, wanted)
        rows.of_call(call.index).asked[wanted] = True
        call = call.in_form(self.asker.config)
        is_open = rows.waits(call) or (where is not None and rows.is_open(where))
        is_known = rows.known.exact and not is_open and not rows.may_stop
        counts = self._counts(call, rows, new, is_bound=not is_known and self.shares is None)
        is_known &= counts.exact
        if counts.asks is not None:
            by = _AskedBy(is_known, call.index, id(rows))
            self._asked |= {key: max(by, self._by(key)) for key in counts.asks.keys}
            self._asked |= {
                key: max(by._replace(is_sure=False), self._by(key)) for key in counts.asks.wholes
            }
        asked = rows.at_most(len(wanted)) if rows.known.held else rows.known.most
        modules = tuple(call.fields[at].name for at in call.modules)
        has_modules = bool(self.asker.modules(call))
        told = ExplainedCall(
            stage=name,
            prompt=_short(call.prompt),
            fields=listed([*map(_shown, call.fields)], ", "),
            rows=asked,
            calls=counts.calls,
            from_ledger=counts.from_ledger,
            counts=None if asked is None and counts.calls is None else "at most",
            order="pinned" if call.is_pinned else self.asker.config.order,
            answers=answers(call.sampling, self.asker.backend)
            + (", and once more if invalid" if call.task.retry else ""),
            hint=hint(call.sampling, self.asker.backend),
            modules=modules if has_modules else (),
            plain=() if has_modules else modules,
            effort=counts.effort,
            hits=counts.charge.hits,
            compared=counts.compared,
            skipped=counts.skipped,
            near=rows.near if name not in self.calls and not call.needs else None,
        )
        if told.counts is not None and is_known:
            told = replace(told, counts="exact")
        elif told.counts is not None and counts.effort and self._is_expected(rows):
            told = replace(told, counts="expected")
        if (cost := counts.charge.cost) is not None:
            told = replace(told, cost=cost * self._part(told.counts))
        earlier = self.calls.get(name)
        self.calls[name] = told if earlier is None else earlier.plus(told)
        self._note(call, rows, wanted, told, name)

    def _is_expected(self, rows: EstimatedRows) -> bool:
        return self.shares is not None and rows.known.is_at_hand

    def _part(self, counts: Counted) -> Range:
        """Which part of the counted calls will be made."""
        if counts == "expected" and self.shares is not None:
            return self.shares.spread
        return ONE if counts in ("exact", "expected") else _AT_MOST

    def _note(
        self,
        call: PlannedCall,
        rows: EstimatedRows,
        wanted: Int64s,
        told: ExplainedCall,
        name: str,
    ) -> None:
        """Note what answers cost, as the walk decides by it which filter goes first."""
        work = told.effort
        if self.shares is None or work is None or not told.calls or work.counted_by == "characters":
            return
        length = self.shares.lengths.get(name)
        if length is not None:
            mean = round(work.prompt_tokens / told.calls)
            answer = Answer(None, Finish.STOP, prompt_tokens=mean, output_tokens=round(length))
            rows.of_call(call.index).answers[wanted] = answer

    def _counts(
        self, call: PlannedCall, rows: EstimatedRows, wanted: Int64s, *, is_bound: bool
    ) -> _Counts:
        if not rows.known.held and call.fields:
            return self._bound(call, rows.known.most)
        if any(rows.is_open(part.value) for part in call.fields):
            return self._bound(call, rows.at_most(rows.number_inputs(call, wanted)))
        count = len(wanted) if rows.known.held else 1  # rows of a call without fields are all alike
        modules = self.asker.modules(call)
        try:
            cells = rows.cells(call.fields, wanted)
            if call.task.kind == "group":
                return self._of_groups(call, rows, wanted, cells.fetch().column(0))
            if call.task.kind == "match":
                return self._of_matches(call, rows, wanted, cells)
            question = Question("", call.task, count, cells, modules, call.keys)
            inputs = Inputs.of(question)
        except QueryError:  # caused by a row that a filter would have dropped
            return self._bound(call, rows.at_most(len(wanted)))
        if rows.known.held:
            rows.note_inputs(call, wanted, inputs.of_row)
        missing = self._missing(inputs.prompts_as_written(), call, rows)
        twice = self._asked_twice(question, inputs, missing, call, id(rows))
        if is_bound and self.asker.config.guard is not None and len(call.fields) > 1:
            twice = twice.at_most(self.asker.config.guard_rows)
        places, again, known, ordered = twice.inputs, twice.again, twice.known, twice.sent
        if ordered is None and (first := self._in_order(inputs, places)) is not None:
            ordered = [*first, *inputs.prompts(again, None)]
        every = np.concatenate((places, again))
        asked: Sequence[Prompt] = inputs.prompts(every, None)
        charge = Charge()
        if ordered is not None:
            charge = self._charge(ordered, inputs.prompts(np.sort(every), None), call, missing)
            if len(ordered) == len(asked):
                asked = ordered
            else:
                charge = charge.of_sample(len(asked) / len(ordered))
        compared = rows.at_most(len(again))
        if (most := rows.at_most(len(places)) + compared) < len(asked):
            charge = charge.times(most / len(asked))
            asked = sorted(asked, key=_length, reverse=True)[:most]
            known = min(known, most)
        work, skipped = self._effort(asked, call, charge.hits), inputs.skipped
        exact = twice.exact and not missing.may_come
        return _Counts(len(asked), known, exact, work, charge, compared, skipped, missing)

    def _bound(self, call: PlannedCall, inputs: int | None) -> _Counts:
        """That there are at most so many inputs, and nothing else of them."""
        config = self.asker.config
        if inputs is not None and config.guard is not None and len(call.fields) > 1:
            inputs += min(inputs, config.guard_rows)
        return _Counts(inputs, None, False, None)

    def _asked_twice(
        self, question: Question, inputs: Inputs, missing: _Missing, call: PlannedCall, rows: int
    ) -> AskedTwice:
        """See sql.explain.guarded. What has been compared is not compared again."""
        asker, here = self.asker, (rows, call.index)
        once = AskedTwice(missing.places, missing.places[:0], None, missing.known, exact=True)
        form = question.task.asks, question.cells.names, question.cells.forms
        is_known = form in self._compared
        if here in self._compared or (is_known and self._ledger(call) is None):
            return once
        is_known &= not len(missing.places)
        twice = asked_twice(question, inputs, replace(asker, ledger=None) if is_known else asker)
        if twice is None:
            return once
        self._compared |= {here, form}
        return twice.answered if is_known else twice

    def _in_order(self, inputs: Inputs, places: Int64s) -> Sequence[Prompt] | None:
        """The prompts of some inputs as they will be sent; of very many, the prompts of a sample.

        None if nothing would be learnt from them.
        """
        if not self._charges.is_known:
            return None
        if len(places) > _ORDERED:
            places = places[np.linspace(0, len(places) - 1, _ORDERED).astype(int)]
        schedule = inputs.schedule(places, self.asker.config.order)
        return inputs.prompts(places if schedule is None else places[schedule.rows], schedule)

    def _charge(
        self,
        ours: Sequence[Prompt],
        written: Sequence[Prompt],
        call: PlannedCall,
        missing: _Missing,
    ) -> Charge:
        """What prompts take in our order, and as written."""
        length = None if self.shares is None else self.shares.lengths.get(self._stage)
        return self._charges.of(
            ours, written, call.sampling, missing.learned, length, is_new=not missing.may_come
        )

    def _effort(self, prompts: Sequence[Prompt], call: PlannedCall, hits: HitRate | None) -> Effort:
        """What prompts take: at most, or if the length of their answers is known, as expected."""
        length = None if self.shares is None else self.shares.lengths.get(self._stage)
        if length is None:
            return effort(prompts, call.sampling, self.asker.backend)
        sampling = replace(call.sampling, max_tokens=max(1, round(length)))
        return effort(prompts, sampling, self.asker.backend, hits.rate if hits else 0.0)

    def _of_groups(
        self, call: PlannedCall, rows: EstimatedRows, wanted: Int64s, lists: pa.ChunkedArray
    ) -> _Counts:
        """The calls about groups. Those that read answers of others are never in the ledger yet."""
        grouped = Grouped.of(call.task, lists, self.asker.backend)
        rows.note_inputs(call, wanted, grouped.of_row)
        forest = grouped.forest
        first = [forest.prompt(at, ()) for at, one in enumerate(forest.trees) if not one.below]
        missing = self._missing(first, call, rows)
        leaves = [first[at] for at in missing.places]
        answer = " and" * call.sampling.max_tokens  # as long as it may be
        later = [
            forest.prompt(at, [answer] * len(one.below))
            for at, one in enumerate(forest.trees)
            if one.below
        ]
        asked = [*leaves, *later]
        charge = self._charge(asked, asked, call, missing)
        work = self._effort(asked, call, charge.hits)
        if later and work.counted_by == "tokenizer":
            work = replace(work, counted_by="sample", refused=None)
        exact = not missing.may_come
        return _Counts(len(asked), missing.known, exact, work, charge, asks=missing)

    def _of_matches(
        self, call: PlannedCall, rows: EstimatedRows, wanted: Int64s, cells: Cells
    ) -> _Counts:
        """The calls that each decide about many pairs of rows."""
        matches = Matches.of(call.task, cells, self.asker.backend)
        rows.note_inputs(call, wanted, matches.of_row)
        missing = self._missing(matches.prompts, call, rows)
        asked = [matches.prompts[at] for at in missing.places]
        charge = self._charge(asked, asked, call, missing)
        work, exact = self._effort(asked, call, charge.hits), not missing.may_come
        return _Counts(len(asked), missing.known, exact, work, charge, asks=missing)

    def _ledger(self, call: PlannedCall) -> AnswerStore | None:
        """Where answers to a call are kept; without it, a statement shares those of equal calls."""
        return self.asker.ledger if has_one_answer(call.sampling) else None

    def _by(self, key: Hashable) -> _AskedBy:
        return self._asked.get(key, _NEVER)

    def _missing(
        self, prompts: Sequence[Prompt], call: PlannedCall, rows: EstimatedRows
    ) -> _Missing:
        """Which prompts neither the ledger nor an earlier stage answers."""
        found = Keys.of("", prompts, call.sampling)
        keys: Sequence[Hashable] = found.decided or found.whole
        ledger, known = self._ledger(call), dict[int, Answer]()
        if ledger is None:
            keys = [(call.task.asks, key) for key in keys]
        elif ledger.has_answers:  # else the backend may be opened only for its name
            known = look_up(ledger, self.asker.names, prompts, call.sampling)[1]
        asked = {
            at: by
            for at, pair in enumerate(zip(keys, found.whole, strict=True))
            if (by := max(map(self._by, pair))) is not _NEVER
        }
        there = {at for at, by in asked.items() if by.is_sure or self.shares is not None}
        missing = [at for at in range(len(prompts)) if at not in known and at not in there]
        # A call gets no credit for the answers that it found itself.
        own = sum(by.call == call.index and by.rows == id(rows) for by in asked.values())
        count = len(prompts) - len(missing) - own if ledger is not None else 0
        answered = sorted(known)[:_LEARNED] if self._charges.tells_costs else []
        return _Missing(
            np.array(missing, np.int64),
            keys,
            found.whole if found.decided else (),
            not asked.keys().isdisjoint(missing),
            count,
            [(prompts[at], known[at]) for at in answered],
        )


def _length(prompt: Prompt) -> int:
    return sum(len(str(span.content)) for span in prompt)


def _shown(field: Field) -> str:
    name = f"BAG({field.name})" if field.is_bag else field.name
    return f"MODULE({name})" if field.is_module else name


def _short(prompt: str) -> str:
    text = " ".join(prompt.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
