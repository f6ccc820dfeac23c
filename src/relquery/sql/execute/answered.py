"""Answers prompts as they are given: looks in the ledger, asks the backend for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from relquery.backends.base import cancelling
from relquery.ledger import has_one_answer, look_up, saving
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.sql.execute.asker import Asker

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
    missing = [at for at in range(len(prompts)) if at not in known]
    if missing:
        with ExitStack() as open_:
            keep = open_.enter_context(saving(ledger)) if ledger is not None else None

            def kept(index: int, answer: Answer) -> None:
                if keep is not None and keys is not None:
                    keep(*keys.entry(missing[index], answer))

            stream = asker.backend.deliver([prompts[at] for at in missing], sampling, kept)
            open_.enter_context(cancelling(stream))
            for index, answer in stream:
                known[missing[index]] = answer
                heard(len(known), answer)
    return [known.get(at, NO_ANSWER) for at in range(len(prompts))]
