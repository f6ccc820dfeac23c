"""What a ledger keeps of an answer, whatever it is written to, and how it is found again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Protocol

from relquery.ledger.claims import Claims, Held
from relquery.ledger.facts import Fact
from relquery.ledger.keys import Keys, kept_text
from relquery.prompt import Answer, Finish, Prompt, Sampling


class AnswerStore(Protocol):
    """Where answers are kept; see Ledger for its fields."""

    may_be_older: bool

    @property
    def path(self) -> Path | None:
        """The file or folder; None if in memory."""

    @property
    def has_answers(self) -> bool:
        """Whether it has any answers."""

    def find(self, keys: Keys) -> dict[int, Answer]:
        """The known answers, by index of the prompt."""

    @property
    def claims(self) -> Claims | None:
        """Who is asking what; None if nobody else asks."""

    def put(
        self,
        answers: Iterable[tuple[bytes, Answer]],
        *,
        are_new: bool = True,
        facts: Sequence[Fact] = (),
        claims: Sequence[Held] = (),
    ) -> None:
        """Store the valid answers durably; see Ledger. Raises sqlite3.Error or OSError."""


def known_answer(
    text: str, prompt_tokens: int, output_tokens: int, scores: Mapping[str, float] | None = None
) -> Answer:
    """A kept answer as it is read again: it takes no attempt."""
    return Answer(
        text,
        Finish.STOP,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        attempts=0,
        scores=scores,
    )


def is_known(answer: Answer) -> bool:
    """Whether an answer is one that a ledger had, as `known_answer` gives it."""
    return answer.attempts == 0 and kept_text(answer) is not None


def scores_as_json(scores: Mapping[str, float]) -> str:
    """Scores as JSON, which has no number for what is impossible."""
    return json.dumps({label: None if log == -inf else log for label, log in scores.items()})


def scores_from_json(text: str) -> dict[str, float]:
    """See `scores_as_json`."""
    return {label: -inf if log is None else log for label, log in json.loads(text).items()}


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
