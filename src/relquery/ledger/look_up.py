"""Looks up prompts in the ledger under all names that a model has had."""

from __future__ import annotations

from collections.abc import Sequence

from relquery.ledger.keys import Keys
from relquery.ledger.stored import AnswerStore
from relquery.prompt import Answer, Prompt, Sampling


def look_up(
    ledger: AnswerStore, names: Sequence[str], prompts: Sequence[Prompt], sampling: Sampling
) -> tuple[Keys, dict[int, Answer]]:
    """The keys to store answers under, and the answers already known, by index.

    names: the model's names. Answers are stored under the first; the others are only looked up in a
    ledger written by an older version.
    """
    keys = Keys.of(names[0], prompts, sampling)
    known = ledger.find(keys)
    for name in names[1:] if ledger.may_be_older else ():
        missing = [index for index in range(len(prompts)) if index not in known]
        older = Keys.of(name, [prompts[index] for index in missing], sampling)
        known |= {missing[at]: answer for at, answer in ledger.find(older).items()}
    return keys, known
