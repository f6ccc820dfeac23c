"""Answers prompts as they are given: looks in the ledger, asks the backend for the rest."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from relquery.arrays import Int64s
from relquery.backends.base import Backend, cancelling
from relquery.config import QueryConfig
from relquery.ledger import AnswerStore, Call, Keys, Turn, has_one_answer, look_up, turns
from relquery.ledger.caching.expected import Foreseen
from relquery.prompt import Answer, Finish, Prompt, Role, Sampling, Span
from relquery.report import StageReport
from relquery.sql.binder.task import Task
from relquery.sql.executor.reading import read_answer, short
from relquery.sql.planner.plan import PlannedCall
from relquery.sql.record import Recording, StageRecord

Progress = Callable[[str, int, int], None]

_SHOWN_FIELDS = 3


@dataclass(frozen=True, slots=True)
class Asker:
    """What answers calls, and with which settings. clock: seconds from any start, for reports.

    recording: notes what is sent, if that is asked for. record: that of the stage which asks.
    usd: what an answer has cost, for the ledger; None where that is not known.
    heard: told of each answer of the backend, for progress.
    """

    backend: Backend
    config: QueryConfig
    ledger: AnswerStore | None
    progress: Progress | None
    clock: Callable[[], float]
    recording: Recording | None = None
    record: StageRecord | None = None
    usd: Callable[[Answer], float | None] | None = None
    heard: Callable[[Answer], None] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The model names used in the ledger. An in-memory ledger has only one model."""
        is_lasting = self.ledger is not None and self.ledger.path is not None
        return self.backend.known_as() if is_lasting else (self.backend.name,)

    def of_stage(self, name: str) -> Asker:
        """The asker for a stage: what is sent is noted there."""
        return self if self.recording is None else replace(self, record=self.recording.stage(name))

    def modules(self, call: PlannedCall) -> tuple[int, ...]:
        """Which fields of a call are modules, where the backend has them; opens it if there are."""
        return call.modules if call.modules and self.backend.has_modules else ()


def after(asker: Asker, earlier: StageReport | None) -> Asker:
    """The asker for more rows of a stage: its progress counts the earlier ones too.

    The total grows with each batch; how many rows a stage asks in the end is not known before.
    """
    if earlier is None or asker.progress is None:
        return asker
    progress, before = asker.progress, earlier.calls + earlier.ledger_hits
    return replace(
        asker, progress=lambda name, done, total: progress(name, before + done, before + total)
    )


def failed(stage: str, inputs: Mapping[str, str | None], trouble: str) -> str:
    """What stopped a query: the stage, the inputs of one of its rows, and the problem."""
    cells = [f"{name} = {short(cell)}" for name, cell in inputs.items()]
    more = f" and {len(cells) - _SHOWN_FIELDS} more" if len(cells) > _SHOWN_FIELDS else ""
    row = f" for {', '.join(cells[:_SHOWN_FIELDS])}{more}" if cells else ""
    return f"{stage}{row}: {trouble}"


NO_ANSWER = Answer(None, Finish.ERROR, "The backend gave no answer.")


def answered(
    prompts: Sequence[Prompt],
    sampling: Sampling,
    asker: Asker,
    heard: Callable[[int, Answer], None] = lambda done, answer: None,
) -> list[Answer]:
    """The answers to prompts, in their order. heard: told of each new one, and how many there are.

    Passes on whatever the backend raises; answers received before that are in the ledger.
    """
    ledger = asker.ledger if has_one_answer(sampling) else None
    known: dict[int, Answer] = {}
    keys = None
    if ledger is not None:
        keys, known = look_up(ledger, asker.names, prompts, sampling)
        if known:
            asker.backend.note_known(sampling)
    missing = [at for at in range(len(prompts)) if at not in known]
    some = [prompts[at] for at in missing]
    with closing(
        delivered(some, np.array(missing, np.int64), sampling, asker, ledger, keys)
    ) as new:
        for at, answer in new:
            known[at] = answer
            heard(len(known), answer)
    return [known.get(at, NO_ANSWER) for at in range(len(prompts))]


def delivered(
    prompts: Sequence[Prompt],
    places: Int64s,
    sampling: Sampling,
    asker: Asker,
    ledger: AnswerStore | None,
    keys: Keys | None,
    foreseen: Foreseen | None = None,
) -> Generator[tuple[int, Answer], None, None]:
    """Ask the backend. Yields (place, answer) as answers arrive; they also go into the ledger.

    What another process asks at the same time is not asked here, but waited for. Its answers took
    no attempt. places: (prompts,), of each among the keys. foreseen: what is expected of each, for
    the ledger. Closing this stops the backend's work on the rest.
    """
    if not len(prompts):
        return
    call = Call(asker.backend.name, sampling, asker.clock, asker.usd)
    with turns(prompts, places, ledger, keys, call, foreseen=foreseen) as some:
        for turn in some:
            if turn.known:
                asker.backend.note_known(sampling)
            yield from turn.known.items()
            if len(turn.prompts):
                yield from _asked(turn, sampling, asker)


def _asked(
    turn: Turn, sampling: Sampling, asker: Asker
) -> Generator[tuple[int, Answer], None, None]:
    came = None if asker.record is None else asker.record.batch(turn.prompts)
    stream = asker.backend.deliver(turn.prompts, sampling, turn.heard)
    with cancelling(stream):
        for index, answer in stream:
            if came is not None:
                came(index, answer)
            if asker.heard is not None:
                asker.heard(answer)
            yield int(turn.places[index]), answer


def asked_again(
    prompts: Sequence[Prompt], answers: Sequence[Answer], task: Task, asker: Asker
) -> dict[int, Answer]:
    """New answers in place of those that are not valid, by their place, with both costs.

    An answer that is still not valid is given as it is.
    """
    troubles = {
        at: trouble
        for at, answer in enumerate(answers)
        if (trouble := read_answer(answer, task)[1]) and answer.text is not None
    }
    again = [(*prompts[at], _reason(answers[at], trouble)) for at, trouble in troubles.items()]
    return {
        at: _both(answers[at], new)
        for at, new in zip(troubles, answered(again, task.sampling, asker), strict=True)
    }


def _reason(answer: Answer, trouble: str) -> Span:
    text = f"\n\nYour answer was:\n{answer.text}\n\nIt is not valid: {trouble}\nAnswer again."
    return Span(text, Role.USER)


def _both(first: Answer, second: Answer) -> Answer:
    """The second answer, with what both have cost."""
    attempts = first.attempts + second.attempts
    return replace(second.with_cost_of(first), attempts=attempts)
