"""The answers to one call, held in columns: a million take tens of megabytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np

from relquery.arrays import Int32s, Objects
from relquery.prompt import Answer, Finish

_FINISHES = tuple(Finish)
_NUMBER_OF = {finish: number for number, finish in enumerate(_FINISHES)}
_MOST_SHARED = 1024  # distinct texts that are looked up, to hold equal ones once
_NO_ANSWER = Answer(None, Finish.ERROR, "The backend gave no answer.")


@dataclass(frozen=True, slots=True)
class Spent:
    """What the answers that were asked for have taken in all; see Answer."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    attempts: int

    def plus(self, more: Spent) -> Spent:
        """What both have taken."""
        return Spent(
            self.prompt_tokens + more.prompt_tokens,
            self.cached_tokens + more.cached_tokens,
            self.output_tokens + more.output_tokens,
            self.attempts + more.attempts,
        )

    @classmethod
    def of(cls, answers: Iterable[Answer]) -> Spent:
        """The sums over answers; those of the ledger took no attempt."""
        asked = [answer for answer in answers if answer.attempts]
        return cls(
            sum(answer.prompt_tokens for answer in asked),
            sum(answer.cached_tokens for answer in asked),
            sum(answer.output_tokens for answer in asked),
            sum(answer.attempts for answer in asked),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Kept(Sequence[Answer]):
    """One answer per input; an error for those that none was put in for.

    An answer is made when it is read. The ids of its tokens and its times are not kept.

    texts: (inputs,). finishes: (inputs,), places in _FINISHES; -1 without an answer. counts:
    (inputs, 4), tokens of the prompt, cached and of the answer, and attempts. more: the answers
    with an error or scores, by input.
    """

    texts: Objects
    finishes: Int32s
    counts: Int32s
    more: dict[int, Answer] = field(default_factory=dict)
    _shared: dict[str, str] = field(default_factory=dict)

    @classmethod
    def none_yet(cls, inputs: int) -> Kept:
        """No answers."""
        texts = np.full(inputs, None, dtype=object)
        return cls(texts, np.full(inputs, -1, np.int32), np.zeros((inputs, 4), np.int32))

    def put(self, index: int, answer: Answer) -> None:
        """Keep the answer to an input, in place of an earlier one."""
        text = answer.text
        if text is not None and (text in self._shared or len(self._shared) < _MOST_SHARED):
            text = self._shared.setdefault(text, text)
        self.texts[index] = text
        self.finishes[index] = _NUMBER_OF[answer.finish]
        self.counts[index] = (
            answer.prompt_tokens,
            answer.cached_tokens,
            answer.output_tokens,
            answer.attempts,
        )
        self.more.pop(index, None)
        if answer.error is not None or answer.scores is not None:
            self.more[index] = replace(answer, tokens=None, first_token=None)

    @property
    def spent(self) -> Spent:
        """The sums over the answers that took an attempt: those of the ledger took none."""
        return Spent(*map(int, self.counts[self.counts[:, 3] > 0].sum(axis=0, dtype=np.int64)))

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Answer: ...
    @overload
    def __getitem__(self, index: slice) -> list[Answer]: ...
    def __getitem__(self, index: int | slice) -> Answer | list[Answer]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        if (answer := self.more.get(at)) is not None:
            return answer
        number = self.finishes[at]
        if number < 0:
            return _NO_ANSWER
        prompt, cached, output, attempts = self.counts[at].tolist()
        return Answer(
            self.texts[at],
            _FINISHES[number],
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
            attempts=attempts,
        )
