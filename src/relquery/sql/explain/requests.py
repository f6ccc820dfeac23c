"""The prompts that a stage sends: those that neither the ledger nor an earlier stage answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relquery.arrays import Int64s
from relquery.ledger import AnswerStore, Keys, has_one_answer, look_up
from relquery.prompt import Answer, Prompt, Sampling
from relquery.sql.binder.call import Task
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.groups import Matches, forest_of
from relquery.sql.explain.rows import EstimatedRows
from relquery.sql.inputs.inputs import Inputs, Question
from relquery.sql.inputs.redaction import hidden
from relquery.sql.planner.plan import PlannedCall

_LEARNED = 256  # answers of the ledger that are learned from
_ORDERED = 100_000  # at most this many inputs are put in order


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """The requests of a stage.

    sampling: how answers are drawn. places: which of its distinct prompts are asked. known: how
    many answers the ledger has, or will have by then. exact: whether there are as many, whatever
    other stages ask and a guard finds. keys: of all prompts. wholes: those of whole answers, where
    others are enough, as they are only compared. learned: some prompts that the ledger answers.
    may_come: whether an earlier stage may have asked some of them. written: the prompts that are
    asked, as the query writes them. sent: these in the order to send, of very many a sample; None
    if it is not known. most: how many of them are asked at most. compared: how many only serve a
    guard. skipped: rows that are not asked. is_guess: whether the text of some prompts depends on
    answers. length: tokens of an answer on average, if they were measured.
    """

    sampling: Sampling
    places: Int64s
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

    def add(self, requests: Requests, *, is_sure: bool) -> None:
        """Note that a stage asks all of its prompts."""
        self._is_sure |= {key: is_sure or self._is_sure.get(key, False) for key in requests.keys}
        for key in requests.wholes:
            self._is_sure.setdefault(key, False)

    def of(self, call: PlannedCall, rows: EstimatedRows, wanted: Int64s) -> Requests:
        """What a call asks about some rows.

        Raises QueryError if the fields of a row cannot be computed.
        """
        backend = self.context.backend
        cells = hidden(rows.cells(call.fields, wanted), call.task)
        if call.task.kind not in ("match", "group"):
            # Rows of a call without fields are all alike.
            count, modules = len(wanted) if rows.known.held else 1, self.context.modules(call)
            question = Question("", call.task, count, cells, modules, call.keys)
            inputs = Inputs.of(question)
            requests = self._missing(inputs.prompts_as_written(), call, rows)
            if rows.known.held:
                rows.note_inputs(call, wanted, inputs.of_row, requests.keys)
            return self._of_inputs(call, requests, inputs, rows)
        first, later = list[Prompt](), list[Prompt]()
        if call.task.kind == "match":
            matches = Matches.of(call.task, cells, backend)
            first, of_row = matches.prompts, matches.of_row
        else:
            forest, of_row = forest_of(call.task, cells.fetch().column(0), backend)
            answer = " and" * call.sampling.max_tokens  # as long as it may be
            for index, tree in enumerate(forest.trees):
                prompt = forest.prompt(index, [answer] * len(tree.below))
                (later if tree.below else first).append(prompt)
        requests = self._missing(first, call, rows)
        rows.note_inputs(call, wanted, of_row)
        # Those that read answers to others are never in the ledger yet.
        asked = [*(first[index] for index in requests.places), *later]
        return replace(requests, written=asked, sent=asked, most=len(asked), is_guess=bool(later))

    def _missing(
        self, prompts: Sequence[Prompt], call: PlannedCall, rows: EstimatedRows
    ) -> Requests:
        """The prompts that neither the ledger nor an earlier stage answers."""
        of_prompts, task = Keys.of("", prompts, call.sampling), call.task
        keys: Sequence[Hashable] = of_prompts.decided or of_prompts.whole
        ledger, known = self._ledger(task), dict[int, Answer]()
        if ledger is None:
            keys = [(task.asks, key) for key in keys]
        elif ledger.has_answers:  # else the backend may be opened only for its name
            known = look_up(ledger, self.context.names, prompts, task.sampling)[1]
        asked = {
            index: any(sure)
            for index, pair in enumerate(zip(keys, of_prompts.whole, strict=True))
            if (sure := [self._is_sure[key] for key in pair if key in self._is_sure])
        }
        there = {index for index, is_sure in asked.items() if is_sure or self.expects}
        is_missing = [index not in known and index not in there for index in range(len(prompts))]
        # A call gets no credit for the answers that it found itself.
        own = rows.keys.get(call.index, {})
        answered = sum(
            keys[index] not in own for index, lacks in enumerate(is_missing) if not lacks
        )
        missing = np.flatnonzero(is_missing)
        may_come = not asked.keys().isdisjoint(missing.tolist())
        return Requests(
            task.sampling,
            missing,
            answered if ledger is not None else 0,
            not may_come,
            keys,
            of_prompts.whole if of_prompts.decided else (),
            [(prompts[index], known[index]) for index in sorted(known)[:_LEARNED]],
            may_come,
        )

    def _of_inputs(
        self, call: PlannedCall, requests: Requests, inputs: Inputs, rows: EstimatedRows
    ) -> Requests:
        """With the prompts that are sent. With a guard, which asks some of them a second time, it
        is not known which answers of the ledger serve; then all may be asked."""
        places, config, sent = requests.places, self.context.config, requests.sent
        is_guarded = config.guard is not None and len(call.fields) > 1
        if is_guarded:
            places = np.arange(inputs.count)
        if self.needs_order:
            sent = self._in_order(inputs, places)
        most = rows.at_most(len(places))
        compared = min(most, config.guard_rows) if is_guarded else 0
        known = requests.known if most == len(places) else min(requests.known, most)
        return replace(
            requests,
            known=known,
            exact=requests.exact and not is_guarded,
            written=inputs.prompts(places, None),
            sent=sent,
            most=most + compared,
            compared=compared,
            skipped=inputs.skipped,
        )

    def _in_order(self, inputs: Inputs, places: Int64s) -> Sequence[Prompt]:
        """The prompts of some inputs as they will be sent; of very many, those of a sample."""
        if len(places) > _ORDERED:
            places = places[np.linspace(0, len(places) - 1, _ORDERED).astype(int)]
        schedule = inputs.schedule(places, self.context.config.order)
        return inputs.prompts(places if schedule is None else places[schedule.rows], schedule)

    def _ledger(self, task: Task) -> AnswerStore | None:
        """Where answers to a call are kept; without it, a statement shares those of equal calls."""
        return self.context.ledger if has_one_answer(task.sampling) else None
