"""What a guard asks: which inputs, and which of them a second time with fields as written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relquery.arrays import Int64s
from relquery.ledger import has_one_answer
from relquery.prompt import Prompt
from relquery.sql.caching.plan import ordered
from relquery.sql.executor.answered import Asker
from relquery.sql.executor.guard import judged, sample
from relquery.sql.executor.sending import AS_WRITTEN, REORDERED, Sending
from relquery.sql.inputs.inputs import Inputs, Question


@dataclass(frozen=True, slots=True, eq=False)
class AskedTwice:
    """inputs: those to ask, whatever the guard finds. again: those to ask once more. sent: all
    these prompts in their order, if it is known. known: how many answers the ledger has. exact:
    whether there are as many, whatever the guard finds.
    """

    inputs: Int64s
    again: Int64s
    sent: Sequence[Prompt] | None
    known: int
    exact: bool

    def at_most(self, rows: int) -> AskedTwice:
        """The same for fewer inputs, of which others may be compared: so many at most."""
        more = np.setdiff1d(self.inputs, self.again)[: rows - len(self.again)]
        return replace(self, again=np.union1d(self.again, more), sent=None)

    @property
    def answered(self) -> AskedTwice:
        """The same, if all of it has been asked before."""
        none = self.again[:0]
        known = self.known + len(self.inputs) + len(self.again)
        return AskedTwice(none, none, (), known, exact=True)


def asked_twice(question: Question, inputs: Inputs, asker: Asker) -> AskedTwice | None:
    """What is asked if a guard compares answers; None if there is no guard, or nothing to compare.

    Otherwise this is the larger number of calls, that with or that without pinned fields.
    """
    if asker.config.guard is None:
        return None
    every = np.arange(inputs.count)
    schedule = ordered(inputs, every, asker.config.order, asker.backend).schedule
    sampled = sample(schedule, asker.config)
    if schedule is None or sampled is None:
        return None
    rows, others = np.sort(sampled.rows), np.setdiff1d(every, sampled.rows)
    first, again, rest, known, exact, is_pinned = rows, rows, others, 0, True, False
    ledger = asker.ledger
    if ledger is not None and has_one_answer(question.task.sampling) and ledger.has_answers:
        sending = Sending.of(question, asker, inputs)
        reordered, written = sending.shelf(REORDERED, rows), sending.shelf(AS_WRITTEN, rows)
        first, again = rows[reordered.lacks(rows)], rows[written.lacks(rows)]
        shelves = [sending.shelf(None), sending.shelf(AS_WRITTEN)]
        if not len(first) and not len(again):
            both = judged(question.task, reordered, written, asker.config.guard)
            is_pinned = both.verdict.is_pinned
            shelves = shelves[1:] if is_pinned else shelves[:1]
        rests = [others[shelf.lacks(others)] for shelf in shelves]
        rest, exact = max(rests, key=len), len({len(one) for one in rests}) == 1
        known = inputs.count + len(rows) - len(first) - len(again) - len(rest)
    parts = [schedule.part(np.flatnonzero(np.isin(schedule.rows, some))) for some in (first, rest)]
    if is_pinned:
        last: Sequence[Prompt] = inputs.prompts(inputs.sorted(rest), None)
    else:
        last = inputs.prompts(parts[1].rows, parts[1])
    sent = [
        *inputs.prompts(parts[0].rows, parts[0]),
        *inputs.prompts(inputs.sorted(again), None),
        *last,
    ]
    return AskedTwice(np.union1d(first, rest), again, sent, known, exact)
