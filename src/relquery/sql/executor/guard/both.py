"""Asks some inputs of a call in both orders: that of the solver, and with fields as written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from relquery.arrays import Int64s
from relquery.config import QueryConfig
from relquery.prompt import Answer
from relquery.sql.binder.task import Task
from relquery.sql.executor.answered import NO_ANSWER
from relquery.sql.executor.guard.verdict import Verdict, sample_of
from relquery.sql.executor.sending import AS_WRITTEN, REORDERED, Sending, Shelf
from relquery.table.schedule import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class Both:
    """Two answers to each of some inputs. inputs: which. verdict: which of the answers count."""

    inputs: Int64s
    reordered: dict[int, Answer]
    written: dict[int, Answer]
    verdict: Verdict

    @property
    def chosen(self) -> dict[int, Answer]:
        """The answers that count, by input."""
        return self.written if self.verdict.is_pinned else self.reordered

    def others(self, used: Mapping[int, Answer]) -> list[Answer]:
        """All answers but those that are used."""
        given = [*self.reordered.items(), *self.written.items()]
        return [answer for row, answer in given if used.get(row) is not answer]


def sample(schedule: Schedule | None, config: QueryConfig) -> Schedule | None:
    """The inputs to compare, in the solver's order. None if it moves no fields."""
    if schedule is None:
        return None
    some = schedule.part(sample_of(schedule, config.guard_rows))
    return some if len(some.rows) else None


def compare(sending: Sending, schedule: Schedule | None) -> Both | None:
    """Ask a sample of the inputs in both orders. None if the schedule moves no fields.

    What the ledger has is not asked again.
    """
    config = sending.asker.config
    some = sample(schedule, config)
    if some is None or config.guard is None:
        return None
    inputs = np.sort(some.rows)
    sending.total += len(inputs)
    reordered, written = sending.shelf(REORDERED, inputs), sending.shelf(AS_WRITTEN, inputs)
    sending.note_known(len(reordered.known) + len(written.known))
    left = some.part(reordered.lacks(some.rows))
    sending.send(left.rows, left, reordered, reordered.known.__setitem__)
    as_written = sending.inputs.sorted(inputs[written.lacks(inputs)])
    sending.send(as_written, None, written, written.known.__setitem__)
    return judged(sending.question.task, reordered, written, config.guard)


def judged(task: Task, reordered: Shelf, written: Shelf, least: float) -> Both:
    """What two answers to each of some inputs show. least: see Verdict."""
    one, other = reordered.known, written.known
    inputs = reordered.inputs
    pairs = ((one.get(row, NO_ANSWER), other.get(row, NO_ANSWER)) for row in inputs.tolist())
    return Both(inputs, one, other, Verdict.of(pairs, task, least))
