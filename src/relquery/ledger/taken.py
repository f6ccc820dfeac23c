"""Prompts that note when a backend takes each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from relquery.ledger.keys import prompt_hash
from relquery.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Sent:
    """A prompt that a backend has taken. begun: seconds from any start. hash: of its text."""

    begun: float
    hash: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Taken(Sequence[Prompt]):
    """Some prompts of a sequence, built when they are read, as it does.

    which: their places there; None for all. clock: seconds from any start.
    """

    prompts: Sequence[Prompt]
    which: Sequence[int] | None
    clock: Callable[[], float]
    _open: dict[int, Sent] = field(default_factory=dict)

    def pop(self, index: int) -> Sent | None:
        """What is known of a prompt that is answered; None if it was never read."""
        return self._open.pop(index, None)

    def __len__(self) -> int:
        return len(self.prompts if self.which is None else self.which)

    @overload
    def __getitem__(self, index: int) -> Prompt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Prompt]: ...
    def __getitem__(self, index: int | slice) -> Prompt | list[Prompt]:
        if isinstance(index, slice):
            places = range(len(self))[index]
            if self.which is not None:
                return [self[at] for at in places]
            return [self._noted(*one) for one in zip(places, self.prompts[index], strict=True)]
        at = range(len(self))[index]
        return self._noted(at, self.prompts[at if self.which is None else self.which[at]])

    def __iter__(self) -> Iterator[Prompt]:
        some = self.prompts
        found = iter(some) if self.which is None else (some[at] for at in self.which)
        for at, prompt in enumerate(found):
            yield self._noted(at, prompt)

    def _noted(self, at: int, prompt: Prompt) -> Prompt:
        self._open[at] = Sent(self.clock(), prompt_hash(prompt))
        return prompt
