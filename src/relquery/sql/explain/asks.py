"""Which prompts a stage sends: those that neither the ledger nor an earlier stage answers, and
those that a guard asks a second time, with fields as written.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from relquery.arrays import Int64s
from relquery.ledger import AnswerStore, Keys, has_one_answer, look_up
from relquery.prompt import Answer, Prompt, Sampling
from relquery.sql.caching.plan import ordered
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.dispatch import AS_WRITTEN, REORDERED, CacheLookup
from relquery.sql.executor.guard import Comparison, sample
from relquery.sql.explain.rows import EstimatedRows
from relquery.sql.inputs.inputs import Inputs, Question
from relquery.sql.planner.plan import PlannedCall

_LEARNED = 256  # answers of the ledger that are learned from
_ORDERED = 100_000  # at most this many inputs are put in order


@dataclass(frozen=True, slots=True, eq=False)
class Asks:
    """What a stage asks.

    sampling: how answers are drawn. places: which of its distinct prompts are asked. known: how
    many answers the ledger has, or will have by then. exact: whether there are as many, whatever
    other stages ask and a guard finds. keys: of all prompts. wholes: those of whole answers, where
    others are enough, as they are only compared. learned: some prompts that the ledger answers.
    may_come: whether an earlier stage may have asked some of them. sent: the prompts in the order
    to send, of very many a sample. written: all of them as the query writes them. count: how many
    there are, `most` of which are asked at most, and `compared` only for a guard. skipped: rows
    that are not asked. is_guess: whether the text of some prompts depends on answers. length:
    tokens of an answer on average, if they were measured.
    """

    sampling: Sampling
    places: Int64s
    known: int
    exact: bool
    keys: Sequence[Hashable]
    wholes: Sequence[Hashable]
    learned: Sequence[tuple[Prompt, Answer]]
    may_come: bool
    sent: Sequence[Prompt] = ()
    written: Sequence[Prompt] = ()
    count: int = 0
    most: int = 0
    compared: int = 0
    skipped: int = 0
    is_guess: bool = False
    length: float | None = None

    def of(self, prompts: Sequence[Prompt], *, is_guess: bool = False) -> Asks:
        """With prompts that are sent in the order of the query."""
        count = len(prompts)
        return replace(
            self, sent=prompts, written=prompts, count=count, most=count, is_guess=is_guess
        )


class _AskedBy(NamedTuple):
    """A call that asks something, and whether it surely does: the greatest is the best."""

    is_sure: bool
    call: int
    rows: int


_NEVER = _AskedBy(is_sure=False, call=-1, rows=0)


class _Guarded(NamedTuple):
    """places: inputs to ask, whatever the guard finds. again: those to ask once more. sent: all
    these prompts in their order, if it is known. known: how many answers the ledger has. exact:
    whether there are as many, whatever the guard finds.
    """

    places: Int64s
    again: Int64s
    sent: Sequence[Prompt] | None
    known: int
    exact: bool


@dataclass(slots=True)
class AskedPrompts:
    """The prompts that the stages of a statement ask, one stage after the other.

    needs_order: whether it matters in which order they are sent. expects: whether these are those
    that are expected, and not all that may be asked.
    """

    asker: ExecutionContext
    needs_order: bool
    expects: bool
    _by_key: dict[Hashable, _AskedBy] = field(default_factory=dict)
    _compared: set[object] = field(default_factory=set)

    def add(self, asks: Asks, call: PlannedCall, rows: EstimatedRows, *, is_sure: bool) -> None:
        """Note that a call asks all of its prompts."""
        by = _AskedBy(is_sure, call.index, id(rows))
        self._by_key |= {key: max(by, self._by(key)) for key in asks.keys}
        by = by._replace(is_sure=False)
        self._by_key |= {key: max(by, self._by(key)) for key in asks.wholes}

    def missing(self, prompts: Sequence[Prompt], call: PlannedCall, rows: EstimatedRows) -> Asks:
        """The prompts that neither the ledger nor an earlier stage answers."""
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
        there = {at for at, by in asked.items() if by.is_sure or self.expects}
        missing = [at for at in range(len(prompts)) if at not in known and at not in there]
        # A call gets no credit for the answers that it found itself.
        own = sum(by[1:] == (call.index, id(rows)) for by in asked.values())
        may_come = not asked.keys().isdisjoint(missing)
        return Asks(
            sampling=call.sampling,
            places=np.array(missing, np.int64),
            known=len(prompts) - len(missing) - own if ledger is not None else 0,
            exact=not may_come,
            keys=keys,
            wholes=found.whole if found.decided else (),
            learned=[(prompts[at], known[at]) for at in sorted(known)[:_LEARNED]],
            may_come=may_come,
        )

    def of_inputs(
        self, question: Question, call: PlannedCall, rows: EstimatedRows, *, is_bound: bool
    ) -> tuple[Inputs, Asks]:
        """What a call asks about rows one by one. is_bound: whether it may be about fewer rows.

        Raises QueryError if the fields of a row cannot be computed.
        """
        inputs, config = Inputs.of(question), self.asker.config
        asks = self.missing(inputs.prompts_as_written(), call, rows)
        guarded = self._guarded(question, inputs, asks, call, rows)
        nothing = asks.places[:0]
        places, again, sent, known, exact = guarded or (
            asks.places,
            nothing,
            None,
            asks.known,
            True,
        )
        if is_bound and config.guard is not None and len(call.fields) > 1:
            # Of fewer inputs, others may be compared.
            more = np.setdiff1d(places, again)[: config.guard_rows - len(again)]
            again, sent = np.union1d(again, more), None
        written = inputs.prompts(np.sort(np.concatenate((places, again))), None)
        if sent is None and self.needs_order:
            sent = [*self._in_order(inputs, places), *inputs.prompts(again, None)]
        compared = rows.at_most(len(again))
        most = min(len(written), rows.at_most(len(places)) + compared)
        return inputs, replace(
            asks,
            known=known if most == len(written) else min(known, most),
            exact=exact and asks.exact,
            sent=written if sent is None else sent,
            written=written,
            count=len(written),
            most=most,
            compared=compared,
            skipped=inputs.skipped,
        )

    def _in_order(self, inputs: Inputs, places: Int64s) -> Sequence[Prompt]:
        """The prompts of some inputs as they will be sent; of very many, those of a sample."""
        if len(places) > _ORDERED:
            places = places[np.linspace(0, len(places) - 1, _ORDERED).astype(int)]
        schedule = inputs.schedule(places, self.asker.config.order)
        return inputs.prompts(places if schedule is None else places[schedule.rows], schedule)

    def _guarded(
        self,
        question: Question,
        inputs: Inputs,
        asks: Asks,
        call: PlannedCall,
        rows: EstimatedRows,
    ) -> _Guarded | None:
        """What is asked if a guard compares answers: with or without pinned fields, whichever is
        more. None if there is no guard or nothing to compare.

        What has been compared is not compared again.
        """
        asker, config, ledger = self.asker, self.asker.config, self._ledger(call)
        here, form = (
            (id(rows), call.index),
            (call.task.asks, question.cells.names, question.cells.forms),
        )
        is_known = form in self._compared
        if config.guard is None or here in self._compared or (is_known and ledger is None):
            return None
        every = np.arange(inputs.count)
        schedule = ordered(inputs, every, config.order, asker.backend).schedule
        sampled = sample(schedule, config.guard_rows)
        if schedule is None or sampled is None:
            return None
        self._compared |= {here, form}
        both = np.sort(sampled.rows)
        if is_known and not len(asks.places):  # equal calls have asked all of it
            return _Guarded(both[:0], both[:0], (), inputs.count + len(both), exact=True)
        first, again, rest = both, both, np.setdiff1d(every, both)
        known, exact, is_pinned = 0, True, False
        if ledger is not None and ledger.has_answers:
            lookup = CacheLookup.of(inputs.prompts_as_written(), call.sampling, asker)
            reordered, written = lookup.marked(REORDERED, both), lookup.marked(AS_WRITTEN, both)
            first, again = both[reordered.lacks(both)], both[written.lacks(both)]
            lookups = [lookup, lookup.marked(AS_WRITTEN)]
            if not len(first) and not len(again):
                compared = Comparison.of(reordered, written, question.task, config.guard)
                is_pinned = compared.is_pinned
                lookups = [lookups[is_pinned]]
            rests = [rest[one.lacks(rest)] for one in lookups]
            rest, exact = max(rests, key=len), len({*map(len, rests)}) == 1
            known = inputs.count + len(both) - len(first) - len(again) - len(rest)

        def by_schedule(some: Int64s) -> Sequence[Prompt]:
            part = schedule.part(np.flatnonzero(np.isin(schedule.rows, some)))
            return inputs.prompts(part.rows, part)

        def as_written(some: Int64s) -> Sequence[Prompt]:
            return inputs.prompts(inputs.sorted(some), None)

        last = as_written(rest) if is_pinned else by_schedule(rest)
        sent = [*by_schedule(first), *as_written(again), *last]
        return _Guarded(np.union1d(first, rest), again, sent, known, exact)

    def _by(self, key: Hashable) -> _AskedBy:
        return self._by_key.get(key, _NEVER)

    def _ledger(self, call: PlannedCall) -> AnswerStore | None:
        """Where answers to a call are kept; without it, a statement shares those of equal calls."""
        return self.asker.ledger if has_one_answer(call.sampling) else None
