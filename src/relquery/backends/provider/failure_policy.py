"""Failure policy: when a prompt is tried again, when a server is left alone, and when all is ended.

                 an answer                     calls for 5 prompts fail in passing
    unproven ───────────────────> closed ─────────────────────────────────────> open
       │                             ^                an answer                  │
       │ 5 fail alike, or            └───────────────────────────────────────────┤
       │ 20 answers are of no use                                 probes fail    │
       └───────────────────────────> given up <──────────────────────────────────┘

Unproven: failures are held back until a prompt is answered or one fails in another way; meanwhile
no other is begun. Closed: failures are their rows' own errors. Open: one call at a time, after
growing waits. Refusals by a limit (429) are no failures: the limiter slows down for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from relquery.backends.provider.errors import RequestFailure
from relquery.backends.wires.errors import ProviderError
from relquery.prompt import Answer

ENOUGH = 5
"""So many requests that fail alike, while none is answered, are taken for all."""
ENOUGH_UNUSABLE = 20
"""The same of answers that are of no use, such as refusals: those may be the prompts' own fault.
A prompt that was asked twice has had two."""
TOO_LONG = 600.0
"""Seconds that nobody waits for: a limit of a day, for example."""
_MOST_REFUSALS = 20
"""Of one prompt by a limit, while others are answered."""
_MOST_PROBES, _MOST_BEYOND = 15, 19
"""Calls to a server in doubt, and calls beyond those under way when the first of them failed."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 16.0
_SPREAD = 0.1
"""What is added to a wait that the server names, at most, so that not all come back at once."""


class FailFastError(Exception):
    """A failure that all requests have. unusable: whether they were answered, by what is no
    answer."""

    def __init__(self, message: str, *, unusable: bool = False) -> None:
        super().__init__(message)
        self.unusable = unusable


@dataclass(slots=True)
class Tries:
    """A prompt's own. begun: how many calls were answered when it was begun.

    failed: calls that brought no answer. refused: calls that a limit refused.
    """

    index: int
    begun: int
    failed: int = 0
    refused: int = 0


def backoff(tries: int, told: float | None, chance: Random) -> float:
    """Seconds until the next try. tries: so far. told: seconds that the server names."""
    if told is not None:
        return told * (1 + _SPREAD * chance.random())
    return chance.random() * _growing(tries - 1)


def _growing(times: int) -> float:
    return float(min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(times, 9)))


@dataclass(slots=True)
class FailurePolicy:
    """Retries and circuit breaker for the prompts of one stage; moments are those of the running
    event loop.

    server: its address. max_retries: tries of a prompt after the first, and of the server once it
    is in doubt. patience: prompts in a row that may fail by the server, later on. deliver: takes
    answers and errors by index. is_proven: whether a prompt was answered, here or before.
    """

    server: str
    max_retries: int
    patience: int
    deliver: Callable[[int, Answer], None]
    is_proven: bool = False
    chance: Random = field(default_factory=Random)
    answered: int = 0
    """Calls that the server has answered, be it to say what is wrong with a prompt."""
    _held: list[tuple[int, Answer, RequestFailure]] = field(default_factory=list)
    _begun: dict[int, int] = field(default_factory=dict)
    _prompts_answered: int = 0
    _in_a_row: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    # the circuit
    _failed: set[int] = field(default_factory=set)
    _under_way: int = 0
    _probes: int = 0
    _failures: int = 0
    _under_way_at_first: int = 0
    _until: float = 0.0
    _limited_since: float | None = None

    # prompts

    @property
    def is_open_to_prompts(self) -> bool:
        """Whether a prompt may be begun now."""
        return not (self._held and self._begun)

    async def wait_for_prompts(self) -> None:
        """Wait until a prompt may be begun. Raises FailFastError."""
        while not self.is_open_to_prompts:
            self._changed.clear()
            await self._changed.wait()
        if self._are_enough():
            self._stop()

    def begin(self, index: int) -> None:
        """A prompt is begun."""
        self._begun[index] = self._prompts_answered

    def end(self, index: int, answer: Answer, failure: RequestFailure | None) -> None:
        """A prompt has ended; failure: None if it was answered. Raises FailFastError."""
        begun = self._begun.pop(index)
        self._changed.set()
        if failure is not None and failure.whose == "prompt":
            self.deliver(index, answer)
            return
        self._count(failure, begun)
        if failure is None or (self._held and self._held[0][2].kind != failure.kind):
            self._prove()
        if failure is None or self.is_proven:
            self.deliver(index, answer)
        else:
            self._held.append((index, answer, failure))

    def finish(self) -> None:
        """No more prompts come. Raises FailFastError."""
        if self._held and (self._are_enough() or self._held[0][2].whose == "model"):
            self._stop()
        self._prove()

    # calls

    def wait(self, now: float) -> float:
        """Seconds until the next call may be sent: inf for until one under way has ended."""
        if not self._is_in_doubt:
            return 0.0
        return inf if self._under_way else max(0.0, self._until - now)

    def call_begins(self) -> None:
        """A call is sent."""
        self._under_way += 1

    def call_ends(self) -> None:
        """A call has ended, whichever way."""
        self._under_way -= 1

    def call_answered(self) -> None:
        """The server has answered."""
        self.answered += 1
        self._failed.clear()
        self._probes = self._failures = 0
        self._limited_since = None

    def next_try(
        self,
        error: ProviderError,
        failure: RequestFailure,
        tries: Tries,
        refusals: int,
        now: float,
    ) -> float | None:
        """Seconds until a prompt is sent again; None if it is not. Raises FailFastError.

        refusals: of the server by a limit, in a row.
        """
        told = error.wait
        if error.is_limit:
            tries.refused += 1
            if self._limited_since is None:
                self._limited_since = now
            seconds = now - self._limited_since
            is_others = self.answered > tries.begun and tries.refused >= _MOST_REFUSALS
            is_last = is_others or seconds > TOO_LONG
            wait = backoff(refusals + 1 if refusals else tries.refused, told, self.chance)
            if told is None:  # the longer nobody is answered, the longer is waited
                wait = max(wait, self.chance.random() * min(_LONGEST_WAIT, seconds))
        else:
            tries.failed += 1
            is_last = tries.failed > self.max_retries or not error.is_passing
            wait = backoff(tries.failed, told, self.chance)
        is_last |= told is not None and told > TOO_LONG
        if error.is_passing and not error.is_limit:
            self._doubt(tries, failure, wait, now)
        return None if is_last else wait

    # fail fast

    def _are_enough(self) -> bool:
        if not self._held:
            return False
        if self._held[0][2].whose != "answer":
            return len(self._held) >= ENOUGH
        return sum(max(1, answer.attempts) for _, answer, _ in self._held) >= ENOUGH_UNUSABLE

    def _count(self, failure: RequestFailure | None, begun: int) -> None:
        """Count failures of the server's. begun: prompts answered when this one was begun."""
        if failure is None:
            self._prompts_answered += 1
        if failure is None or failure.whose != "server":
            self._in_a_row = 0
        elif begun == self._prompts_answered:  # else it failed long ago, and others came since
            self._in_a_row += 1
        if failure is not None and self.is_proven and self._in_a_row >= self.patience:
            raise FailFastError(
                f"The last {self._in_a_row} requests to {self.server} failed. {failure.reason}"
            )

    def _prove(self) -> None:
        self.is_proven = True
        held, self._held = self._held, []
        for index, answer, _ in held:
            self.deliver(index, answer)

    def _stop(self) -> None:
        first, count = self._held[0][2], len(self._held)
        alike = f"The first {count} requests to {self.server} all failed alike. "
        unusable = first.whose == "answer"
        for index, answer, _ in self._held:
            if unusable and answer.text is not None:  # it came, and may be asked about once more
                self.deliver(index, answer)
        reason = first.reason if first.whose == "model" else alike + first.reason
        raise FailFastError(reason, unusable=unusable)

    # the circuit

    @property
    def _is_in_doubt(self) -> bool:
        return self.max_retries > 0 and len(self._failed) >= ENOUGH

    def _doubt(self, tries: Tries, failure: RequestFailure, wait: float, now: float) -> None:
        """A call has failed by something that may pass. Raises FailFastError."""
        if tries.begun != self.answered or (self.answered and failure.whose != "server"):
            return
        if not self._failures:
            self._under_way_at_first = self._under_way + 1
        self._failures += 1
        was_in_doubt = self._is_in_doubt
        self._failed.add(tries.index)
        if not self._is_in_doubt:
            return
        if was_in_doubt and not self._under_way:
            self._probes += 1
        self._until = max(self._until, now + max(wait, _growing(self._probes)))
        beyond = self._failures - self._under_way_at_first
        if self._probes >= min(self.max_retries, _MOST_PROBES) or beyond >= _MOST_BEYOND:
            place = "last" if self.answered else "first"
            raise FailFastError(
                f"The {place} {self._failures} requests to {self.server} failed. {failure.reason}"
            )
