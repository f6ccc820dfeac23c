"""Sends the inputs of a call, keeps the answers in the ledger, and counts both.

The ledger has answers under three kinds of keys, all made from the prompt as written:

    no mark     what a row got, in whatever order of fields
    REORDERED   for inputs that a guard has compared, in an order of the solver
    AS_WRITTEN  for these too, and for all inputs of a call whose fields are pinned

So a guard never takes the answer to one order for that to another, and a query that runs again
asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import numpy as np

from relquery.arrays import Int64s
from relquery.ledger import AnswerStore, Keys, has_one_answer, is_known, look_up, save_copies
from relquery.prompt import Answer, Prompt
from relquery.sql.caching.foreseen import foreseen
from relquery.sql.caching.plan import CachePlan, planned
from relquery.sql.executor.answered import Asker, delivered
from relquery.sql.inputs.inputs import Inputs, Question
from relquery.table.schedule import Schedule

Marked = Literal["fields reordered", "fields as written"]
REORDERED: Marked = "fields reordered"
AS_WRITTEN: Marked = "fields as written"
_PINNED = ("original", "fixed")
"""Orders in which fields stay as written, or are the same in all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Shelf:
    """Where answers are kept. inputs: whose, ascending. keys: theirs; None if they are not kept.

    known: the answers by input.
    """

    inputs: Int64s
    keys: Keys | None
    known: dict[int, Answer]

    def lacks(self, inputs: Int64s) -> Int64s:
        """The places, among some inputs, of those without an answer."""
        return np.flatnonzero(~np.isin(inputs, list(self.known)))


@dataclass(slots=True)
class Sending:
    """The inputs of a call while they are asked.

    prompt_keys: of the prompts as written. ledger: None, like the keys, if answers are not kept.
    total: how many answers are needed. known: how many the ledger had. sent: how many were asked.
    """

    question: Question
    asker: Asker
    inputs: Inputs
    ledger: AnswerStore | None
    prompt_keys: Keys | None
    any_known: dict[int, Answer]
    total: int
    known: int = 0
    sent: int = 0

    @property
    def every(self) -> Int64s:
        """All inputs."""
        return np.arange(self.inputs.count)

    @classmethod
    def of(cls, question: Question, asker: Asker, inputs: Inputs | None = None) -> Sending:
        """Nothing sent yet. inputs: those of the question, if they are known."""
        inputs = inputs or Inputs.of(question)
        ledger = asker.ledger if has_one_answer(question.task.sampling) else None
        keys, known = None, dict[int, Answer]()
        if ledger is not None:
            prompts = inputs.prompts_as_written()
            keys, known = look_up(ledger, asker.names, prompts, question.task.sampling)
            if known:
                asker.backend.note_known(question.task.sampling)
        return cls(question, asker, inputs, ledger, keys, known, total=inputs.count)

    def shelf(self, mark: Marked | None, inputs: Int64s | None = None) -> Shelf:
        """Where answers are kept: all in any order, or those in one order to some inputs.

        inputs: in ascending order; None for all.
        """
        rows = self.every if inputs is None else inputs
        if mark is None:
            return Shelf(rows, self.prompt_keys, self.any_known)
        if self.prompt_keys is None or self.ledger is None:
            return Shelf(rows, None, {})
        keys = self.prompt_keys
        keys = (keys if inputs is None else keys.part(inputs.tolist())).marked(mark)
        found = self.ledger.find(keys)
        return Shelf(rows, keys, {int(rows[at]): answer for at, answer in found.items()})

    def note_known(self, count: int) -> None:
        """Count answers of the ledger."""
        self.known += count
        self._tell(self.sent)

    def send(
        self,
        rows: Int64s,
        schedule: Schedule | None,
        shelf: Shelf,
        heard: Callable[[int, Answer], None],
        plan: CachePlan | None = None,
    ) -> None:
        """Ask inputs `rows`, with the fields of a schedule for them, or as written if None.

        heard: told of each input and its answer; what it raises ends the requests. plan: what the
        provider caches of their prompts, if it is known.
        """
        done = self.sent
        prompts: Sequence[Prompt] = self.inputs.prompts(rows, schedule)
        places = np.searchsorted(shelf.inputs, rows)
        is_pinned = bool(self.inputs.pinned) or schedule is None
        is_pinned |= self.asker.config.order in _PINNED
        if plan is None:
            plan = planned(prompts, self.asker.backend)
            is_pinned |= schedule is not None and schedule.report.method in _PINNED
        expected = None
        if self.ledger is not None and self.ledger.claims is not None:
            expected = foreseen(prompts, plan, self.asker.backend, is_pinned=is_pinned)
        if plan is not None and plan.changes:
            prompts, places = plan.prompts(prompts), places[plan.order]
        self.sent += len(rows)
        sampling = self.question.task.sampling
        # Closes immediately if something raises here, so the backend stops working on the rest.
        with closing(
            delivered(prompts, places, sampling, self.asker, self.ledger, shelf.keys, expected)
        ) as stream:
            for at, answer in stream:
                if is_known(answer):
                    self.sent, self.known = self.sent - 1, self.known + 1
                else:
                    done += 1
                heard(int(shelf.inputs[at]), answer)
                self._tell(done)

    def copy(self, answers: Mapping[int, Answer]) -> None:
        """Keep answers to some inputs, which another shelf has, as those that their rows got."""
        if self.ledger is not None and self.prompt_keys is not None and answers:
            keys = self.prompt_keys
            save_copies(self.ledger, (keys.entry(row, one) for row, one in answers.items()))

    def _tell(self, sent: int) -> None:
        if self.asker.progress is not None:
            self.asker.progress(self.question.name, self.known + sent, self.total)
