"""Whether requests fail each for itself or all alike, which is a reason to stop asking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from relquery.backends.provider.form.failures import Failure
from relquery.prompt import Answer, Prompt

ENOUGH = 5
"""So many requests that fail alike, while none is answered, are taken for all."""
ENOUGH_REFUSED = 20
"""The same of answers that are of no use, such as refusals: those may be the prompts' own fault.
A prompt that was asked twice has had two."""


class AllAlikeError(Exception):
    """What all requests fail by."""


@dataclass(slots=True)
class Trial:
    """The requests of one call: `prompts`, by index.

    Answers go to `deliver` as they come; failures only once a request was answered, or has failed
    in another way. Until then no other is sent while some are under way.

    server: its address. patience: failures of the server's in a row, later on, after which it is
    given up. is_settled: whether failures are delivered as they come.
    """

    prompts: Iterator[tuple[int, Prompt]]
    server: str
    deliver: Callable[[int, Answer], None]
    patience: int
    is_settled: bool = False
    _held: list[tuple[int, Answer, Failure]] = field(default_factory=list)
    _begun: dict[int, int] = field(default_factory=dict)
    _answered: int = 0
    _in_a_row: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_open(self) -> bool:
        """Whether a prompt may be begun now."""
        return not (self._held and self._begun)

    async def opened(self) -> None:
        """Wait until a prompt may be begun. Raises AllAlikeError."""
        while not self.is_open:
            self._changed.clear()
            await self._changed.wait()
        if self._are_enough():
            self._stop()

    def begin(self) -> tuple[int, Prompt] | None:
        """The next prompt, which is begun; None if there is none."""
        for index, prompt in self.prompts:
            self._begun[index] = self._answered
            return index, prompt
        return None

    def end(self, index: int, answer: Answer, failure: Failure | None) -> None:
        """One has ended; failure: None if it was answered. Raises AllAlikeError."""
        begun = self._begun.pop(index)
        self._changed.set()
        if failure is not None and failure.whose == "prompt":
            self.deliver(index, answer)
            return
        self._count(failure, begun)
        if failure is None or (self._held and self._held[0][2].kind != failure.kind):
            self._settle()
        if failure is None or self.is_settled:
            self.deliver(index, answer)
        else:
            self._held.append((index, answer, failure))

    def over(self) -> None:
        """No more requests come. Raises AllAlikeError."""
        if self._held and (self._are_enough() or self._held[0][2].whose == "model"):
            self._stop()
        self._settle()

    def _are_enough(self) -> bool:
        if not self._held:
            return False
        if self._held[0][2].whose != "answer":
            return len(self._held) >= ENOUGH
        return sum(max(1, answer.attempts) for _, answer, _ in self._held) >= ENOUGH_REFUSED

    def _count(self, failure: Failure | None, begun: int) -> None:
        """Count failures of the server's. begun: how many were answered when this one was."""
        if failure is None:
            self._answered += 1
        if failure is None or failure.whose != "server":
            self._in_a_row = 0
        elif begun == self._answered:  # else it failed long ago, and was tried again since
            self._in_a_row += 1
        if failure is not None and self.is_settled and self._in_a_row >= self.patience:
            raise AllAlikeError(
                f"The last {self._in_a_row} requests to {self.server} failed. {failure.reason}"
            )

    def _settle(self) -> None:
        self.is_settled = True
        held, self._held = self._held, []
        for index, answer, _ in held:
            self.deliver(index, answer)

    def _stop(self) -> None:
        first, count = self._held[0][2], len(self._held)
        begun = f"The first {count} requests to {self.server} all failed alike. "
        raise AllAlikeError(first.reason if first.whose == "model" else begun + first.reason)
