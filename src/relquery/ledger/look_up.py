"""What the ledger knows of some prompts, by the names that a model has had."""

from __future__ import annotations

from collections.abc import Sequence

from relquery.ledger.keys import Keys
from relquery.ledger.store import Ledger
from relquery.prompt import Answer, Prompt, Sampling


def look_up(
    ledger: Ledger, names: Sequence[str], prompts: Sequence[Prompt], sampling: Sampling
) -> tuple[Keys, dict[int, Answer]]:
    """Where answers to prompts are to be stored, and those that are known, by index.

    names: what the model is known as, the name to store under first. The others count in a ledger
    that an older version wrote.
    """
    keys = Keys.of(names[0], prompts, sampling)
    known = ledger.find(keys)
    for name in names[1:] if ledger.may_be_older else ():
        missing = [index for index in range(len(prompts)) if index not in known]
        older = Keys.of(name, [prompts[index] for index in missing], sampling)
        known |= {missing[at]: answer for at, answer in ledger.find(older).items()}
    return keys, known
