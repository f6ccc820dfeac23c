"""Which prompts a stage sends: those that neither the ledger nor an earlier stage answers, and
those that a guard asks a second time, with fields as written.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relquery.arrays import Int64s
from relquery.ledger import AnswerStore, Keys, has_one_answer, look_up
from relquery.prompt import Answer, Prompt, Sampling
from relquery.sql.binder.call import Task
from relquery.sql.caching.plan import ordered
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.dispatch import AS_WRITTEN, REORDERED, CacheLookup
from relquery.sql.executor.groups import Matches, forest_of
from relquery.sql.executor.guard import Comparison, sample
from relquery.sql.explain.rows import EstimatedRows
from relquery.sql.inputs.inputs import Inputs, Question
from relquery.sql.inputs.redaction import completed, hidden
from relquery.sql.planner.plan import PlannedCall

_LEARNED = 256  # answers of the ledger that are learned from
_ORDERED = 100_000  # at most this many inputs are put in order


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """What a stage asks.

    sampling: how answers are drawn. places: which of its
    distinct prompts are asked, and again: which of them a second time, for a guard. known: how many
    answers the ledger has, or will have by then. exact: whether there are as many, whatever other
    stages ask and a guard finds. keys: of all prompts. wholes: those of whole answers, where others
    are enough, as they are only compared. learned: some prompts that the ledger answers. may_come:
    whether an earlier stage may have asked some of them. written: the prompts that are asked, as
    the query writes them. sent: these in the order to send, of very many a sample; None if it is
    not known. most: how many of them are asked at most. compared: how many only serve a guard.
    skipped: rows that are not asked. is_guess: whether the text of some prompts depends on answers.
    length: tokens of an answer on average, if they were measured. answers: to all prompts, if the
    ledger has them.
    """

    sampling: Sampling
    places: Int64s
    again: Int64s
    known: int
    exact: bool
    keys: Sequence[Hashable]
    wholes: Sequence[Hashable]
    learned: Sequence[tuple[Prompt, Answer]]
    may_come: bool
    written: Sequence[Prompt] = ()
    sent: Sequence[Prompt] | None = None
    most: int = 0
    compared: int = 0
    skipped: int = 0
    is_guess: bool = False
    length: float | None = None
    answers: Sequence[Answer] | None = None

    @property
    def prompts(self) -> Sequence[Prompt]:
        """Those that are sent, in their order as far as it is known."""
        return self.written if self.sent is None else self.sent


@dataclass(slots=True)
class RequestPlanner:
    """The prompts that the stages of a statement ask, one stage after the other.

    needs_order: whether it matters in which order they are sent. expects: whether these are those
    that are expected, and not all that may be asked.
    """

    context: ExecutionContext
    needs_order: bool
    expects: bool
    _is_sure: dict[Hashable, bool] = field(default_factory=dict)
    _compared: set[object] = field(default_factory=set)

    def add(self, requests: Requests, *, is_sure: bool) -> None:
        """Note that a stage asks all of its prompts."""
        self._is_sure |= {key: is_sure or self._is_sure.get(key, False) for key in requests.keys}
        for key in requests.wholes:
            self._is_sure.setdefault(key, False)

    def of(
        self, call: PlannedCall, rows: EstimatedRows, wanted: Int64s, *, is_bound: bool
    ) -> Requests:
        """What a call asks about some rows. is_bound: whether it may be about fewer of them.

        Raises QueryError if the fields of a row cannot be computed.
        """
        given, backend = rows.cells(call.fields, wanted), self.context.backend
        cells = hidden(given, call.task.redact)
        if call.task.kind not in ("match", "group"):
            # Rows of a call without fields are all alike.
            count, modules = len(wanted) if rows.known.held else 1, self.context.modules(call)
            question = Question("", call.task, count, cells, modules, call.keys)
            inputs = Inputs.of(question)
            requests = self._missing(inputs.prompts_as_written(), call, rows)
            if rows.known.held:
                rows.note_inputs(call, wanted, inputs.of_row, requests.keys)
            if self.context.config.guard is None:
                of_row, answers = inputs.of_row, requests.answers
                if answers is not None:
                    answers, of_row = completed(answers, of_row, given, call.task)
                rows.tell(call, wanted, of_row, answers)
            requests = self._guarded(requests, question, inputs, (id(rows), call.index))
            is_bound &= self.context.config.guard is not None and len(call.fields) > 1
            return self._of_inputs(requests, inputs, rows, is_bound=is_bound)
        first, later = list[Prompt](), list[Prompt]()
        if call.task.kind == "match":
            matches = Matches.of(call.task, cells, backend)
            first, of_row = matches.prompts, matches.of_row
        else:
            forest, of_row = forest_of(call.task, cells.fetch().column(0), backend)
            answer = " and" * call.sampling.max_tokens  # as long as it may be
            for at, tree in enumerate(forest.trees):
                prompt = forest.prompt(at, [answer] * len(tree.below))
                (later if tree.below else first).append(prompt)
        requests = self._missing(first, call, rows)
        rows.note_inputs(call, wanted, of_row)
        # Those that read answers to others are never in the ledger yet.
        asked = [*(first[at] for at in requests.places), *later]
        return replace(requests, written=asked, sent=asked, most=len(asked), is_guess=bool(later))

    def _missing(
        self, prompts: Sequence[Prompt], call: PlannedCall, rows: EstimatedRows
    ) -> Requests:
        """The prompts that neither the ledger nor an earlier stage answers."""
        found, task = Keys.of("", prompts, call.sampling), call.task
        keys: Sequence[Hashable] = found.decided or found.whole
        ledger, known = self._ledger(task), dict[int, Answer]()
        if ledger is None:
            keys = [(task.asks, key) for key in keys]
        elif ledger.has_answers:  # else the backend may be opened only for its name
            known = look_up(ledger, self.context.names, prompts, task.sampling)[1]
        asked = {
            at: any(sure)
            for at, pair in enumerate(zip(keys, found.whole, strict=True))
            if (sure := [self._is_sure[key] for key in pair if key in self._is_sure])
        }
        there = {at for at, is_sure in asked.items() if is_sure or self.expects}
        is_missing = [at not in known and at not in there for at in range(len(prompts))]
        # A call gets no credit for the answers that it found itself.
        own = rows.keys.get(call.index, {})
        answered = sum(keys[at] not in own for at, lacks in enumerate(is_missing) if not lacks)
        missing = np.flatnonzero(is_missing)
        may_come = not asked.keys().isdisjoint(missing.tolist())
        return Requests(
            task.sampling,
            missing,
            missing[:0],
            answered if ledger is not None else 0,
            not may_come,
            keys,
            found.whole if found.decided else (),
            [(prompts[at], known[at]) for at in sorted(known)[:_LEARNED]],
            may_come,
            answers=[known[at] for at in range(len(prompts))]
            if len(known) == len(prompts)
            else None,
        )

    def _of_inputs(
        self, requests: Requests, inputs: Inputs, rows: EstimatedRows, *, is_bound: bool
    ) -> Requests:
        """With the prompts that are sent. is_bound: whether a guard may compare other inputs."""
        places, again, sent = requests.places, requests.again, requests.sent
        if is_bound:
            more = np.setdiff1d(places, again)[: self.context.config.guard_rows - len(again)]
            again, sent = np.union1d(again, more), None
        if sent is None and self.needs_order:
            sent = [*self._in_order(inputs, places), *inputs.prompts(again, None)]
        written = inputs.prompts(np.sort(np.concatenate((places, again))), None)
        compared = rows.at_most(len(again))
        most = min(len(written), rows.at_most(len(places)) + compared)
        known = requests.known if most == len(written) else min(requests.known, most)
        return replace(
            requests,
            known=known,
            written=written,
            sent=sent,
            most=most,
            compared=compared,
            skipped=inputs.skipped,
        )

    def _in_order(self, inputs: Inputs, places: Int64s) -> Sequence[Prompt]:
        """The prompts of some inputs as they will be sent; of very many, those of a sample."""
        if len(places) > _ORDERED:
            places = places[np.linspace(0, len(places) - 1, _ORDERED).astype(int)]
        schedule = inputs.schedule(places, self.context.config.order)
        return inputs.prompts(places if schedule is None else places[schedule.rows], schedule)

    def _guarded(
        self, requests: Requests, question: Question, inputs: Inputs, here: tuple[int, int]
    ) -> Requests:
        """The same if a guard compares answers: with or without pinned fields, whichever is more.

        What has been compared is not compared again. here: tells the call from others.
        """
        context, config, ledger = self.context, self.context.config, self._ledger(question.task)
        form = question.task.asks, question.cells.names, question.cells.forms
        is_known = form in self._compared
        if config.guard is None or here in self._compared or (is_known and ledger is None):
            return requests
        every = np.arange(inputs.count)
        schedule = ordered(inputs, every, config.order, context.backend).schedule
        sampled = sample(schedule, config.guard_rows)
        if schedule is None or sampled is None:
            return requests
        self._compared |= {here, form}
        both = np.sort(sampled.rows)
        if is_known and not len(requests.places):  # equal calls have asked all of it
            return replace(requests, known=inputs.count + len(both))
        first, again, rest = both, both, np.setdiff1d(every, both)
        known, exact = 0, True
        if ledger is not None and ledger.has_answers:
            lookup = CacheLookup.of(inputs.prompts_as_written(), requests.sampling, context)
            reordered, written = lookup.marked(REORDERED, both), lookup.marked(AS_WRITTEN, both)
            first, again = both[reordered.lacks(both)], both[written.lacks(both)]
            lookups = [lookup, lookup.marked(AS_WRITTEN)]
            some = np.setdiff1d(both, np.union1d(first, again))
            known_of = replace(reordered, inputs=some), written
            agreed = Comparison.of(*known_of, question.task, config.guard).agreed
            if (agreed + len(both) - len(some)) / len(both) < config.guard:  # whatever others say
                lookups = lookups[1:]
            elif agreed / len(both) >= config.guard:
                lookups = lookups[:1]
            rests = [rest[one.lacks(rest)] for one in lookups]
            rest, exact = max(rests, key=len), len({*map(len, rests)}) == 1
            known = inputs.count + len(both) - len(first) - len(again) - len(rest)
        places, exact = np.union1d(first, rest), exact and requests.exact
        part = schedule.part(np.flatnonzero(np.isin(schedule.rows, places)))
        sent = [*inputs.prompts(part.rows, part), *inputs.prompts(inputs.sorted(again), None)]
        return replace(requests, places=places, again=again, sent=sent, known=known, exact=exact)

    def _ledger(self, task: Task) -> AnswerStore | None:
        """Where answers to a call are kept; without it, a statement shares those of equal calls."""
        return self.context.ledger if has_one_answer(task.sampling) else None
