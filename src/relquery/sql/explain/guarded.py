"""What a guard asks: which inputs, and which of them a second time with fields as written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relquery.arrays import Int64s
from relquery.ledger import has_one_answer
from relquery.sql.caching.plan import ordered
from relquery.sql.executor.answered import Asker
from relquery.sql.executor.guard import judged, sample
from relquery.sql.executor.sending import AS_WRITTEN, REORDERED, Sending
from relquery.sql.inputs.inputs import Inputs, Question


@dataclass(frozen=True, slots=True, eq=False)
class AskedTwice:
    """inputs: those to ask, whatever the guard finds. again: those to ask once more. known: how
    many answers the ledger has. exact: whether there are as many, whatever the guard finds.
    """

    inputs: Int64s
    again: Int64s
    known: int
    exact: bool


def asked_twice(question: Question, inputs: Inputs, asker: Asker) -> AskedTwice | None:
    """What is asked if a guard compares answers; None if there is no guard, or nothing to compare.

    Otherwise this is the larger number of calls, that with or that without pinned fields.
    """
    if asker.config.guard is None:
        return None
    every = np.arange(inputs.count)
    sent = ordered(inputs, every, asker.config.order, asker.backend)
    sampled = sample(sent.schedule, asker.config)
    if sampled is None:
        return None
    rows = np.sort(sampled.rows)
    ledger = asker.ledger
    if ledger is None or not has_one_answer(question.task.sampling) or not ledger.has_answers:
        return AskedTwice(every, rows, 0, exact=True)
    sending = Sending.of(question, asker, inputs)
    reordered, written = sending.shelf(REORDERED, rows), sending.shelf(AS_WRITTEN, rows)
    first, again = rows[reordered.lacks(rows)], rows[written.lacks(rows)]
    others = np.setdiff1d(every, rows)
    shelves = [sending.shelf(None), sending.shelf(AS_WRITTEN)]
    if not len(first) and not len(again):
        both = judged(question.task, reordered, written, asker.config.guard)
        shelves = shelves[1:] if both.verdict.is_pinned else shelves[:1]
    rests = [others[shelf.lacks(others)] for shelf in shelves]
    asked = np.union1d(max(rests, key=len), first)
    known = inputs.count + len(rows) - len(asked) - len(again)
    return AskedTwice(asked, again, known, exact=len({len(rest) for rest in rests}) == 1)
