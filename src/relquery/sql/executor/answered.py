"""Answers prompts as they are given: looks in the ledger, asks the backend for the rest."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

import numpy as np

from relquery.arrays import Int64s
from relquery.backends.base import cancelling
from relquery.ledger import AnswerStore, Call, Keys, Turn, has_one_answer, look_up, turns
from relquery.ledger.caching.expected import Foreseen
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.sql.executor.asker import Asker

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
