"""Whether requests fail each for itself or all alike, which is a reason to stop asking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from relquery.prompt import Answer, Prompt

ENOUGH = 5
"""So many requests that fail alike, while none is answered, are taken for all."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no answer.

    kind: the same for failures that are alike. reason: what to say where all are. whose: the
    prompt's own; the model's, of which one is enough where there are no others; the server's,
    whatever the prompt; or not to be told.
    """

    kind: str
    reason: str
    whose: Literal["prompt", "model", "server", "unknown"] = "unknown"


class AllAlikeError(Exception):
    """What all requests fail by."""


@dataclass(slots=True)
class Trial:
    """The requests of one call: `prompts`, by index.

    Answers go to `deliver` as they come; failures only once a request was answered, or has failed
    in another way. Until then no other is sent while some are under way.

    server: its address. patience: failures of the server's in a row, later on, after which it is
    given up.
    """

    prompts: Iterator[tuple[int, Prompt]]
    server: str
    deliver: Callable[[int, Answer], None]
    patience: int
    _is_settled: bool = False
    _held: list[tuple[int, Answer, Failure]] = field(default_factory=list)
    _running: int = 0
    _in_a_row: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _door: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def begin(self) -> tuple[int, Prompt] | None:
        """The next prompt, once it may be sent; None if there is none, or AllAlikeError."""
        async with self._door:  # one after the other, so that they go in their order
            while self._held and self._running:
                self._changed.clear()
                await self._changed.wait()
            if len(self._held) >= ENOUGH:
                self._stop()
            for index, prompt in self.prompts:
                self._running += 1
                return index, prompt
        return None

    def end(self, index: int, answer: Answer, failure: Failure | None) -> None:
        """One has ended; failure: None if it was answered. Raises AllAlikeError."""
        self._running -= 1
        self._changed.set()
        if failure is not None and failure.whose == "prompt":
            self.deliver(index, answer)
            return
        self._count(failure)
        if failure is None or (self._held and self._held[0][2].kind != failure.kind):
            self._settle()
        if failure is None or self._is_settled:
            self.deliver(index, answer)
        else:
            self._held.append((index, answer, failure))

    def over(self) -> None:
        """No more requests come. Raises AllAlikeError."""
        if self._held and (len(self._held) >= ENOUGH or self._held[0][2].whose == "model"):
            self._stop()
        self._settle()

    def _count(self, failure: Failure | None) -> None:
        is_servers = failure is not None and failure.whose == "server"
        self._in_a_row = self._in_a_row + 1 if is_servers else 0
        if failure is not None and self._is_settled and self._in_a_row >= self.patience:
            raise AllAlikeError(
                f"The last {self._in_a_row} requests to {self.server} failed. {failure.reason}"
            )

    def _settle(self) -> None:
        self._is_settled = True
        held, self._held = self._held, []
        for index, answer, _ in held:
            self.deliver(index, answer)

    def _stop(self) -> None:
        first, count = self._held[0][2], len(self._held)
        begun = f"The first {count} requests to {self.server} all failed alike. "
        raise AllAlikeError(first.reason if first.whose == "model" else begun + first.reason)
