"""A server that fails whatever it is asked is asked one call at a time, and then no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from relquery.backends.provider.form.failures import Failure
from relquery.backends.provider.sending.trial import ENOUGH, AllAlikeError

_MOST_PROBES, _MOST_BEYOND = 15, 19
"""Calls to a server in doubt, and calls beyond those under way when the first of them failed."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 16.0


@dataclass(slots=True)
class Circuit:
    """Of the calls for the prompts of one stage; moments are those of the clock.

    server: its address. max_retries: tries of a prompt after the first, and of the server once it
    is in doubt. answered: calls so far that the server has answered.

    A server is in doubt once calls for several prompts have failed and none was answered since the
    first of them was begun. Refusals by a limit do not count: see Limiter.
    """

    server: str
    max_retries: int
    answered: int = 0
    _failed: set[int] = field(default_factory=set)
    _under_way: int = 0
    _probes: int = 0
    _count: int = 0
    _at_first: int = 0
    _until: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next call may be sent: inf for until one under way has ended."""
        if not self._is_in_doubt:
            return 0.0
        return inf if self._under_way else max(0.0, self._until - now)

    def begin(self) -> None:
        """A call is sent."""
        self._under_way += 1

    def end(self) -> None:
        """A call has ended, whichever way."""
        self._under_way -= 1

    def succeed(self) -> None:
        """The server has answered, be it to say what is wrong with a prompt."""
        self.answered += 1
        self._failed.clear()
        self._probes = self._count = 0

    def fail(self, index: int, begun: int, failure: Failure, wait: float, now: float) -> None:
        """A call for a prompt has failed by something that may pass. Raises AllAlikeError.

        begun: `answered` when the prompt's first call was sent. wait: seconds until the next try.
        """
        is_servers = failure.whose == "server"
        if begun != self.answered or (self.answered and not is_servers):
            return
        if not self._count:
            self._at_first = self._under_way + 1
        self._count += 1
        was_in_doubt = self._is_in_doubt
        self._failed.add(index)
        if not self._is_in_doubt:
            return
        if was_in_doubt and not self._under_way:
            self._probes += 1
        growing = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**self._probes)
        self._until = max(self._until, now + max(wait, growing))
        beyond = self._count - self._at_first
        if self._probes >= min(self.max_retries, _MOST_PROBES) or beyond >= _MOST_BEYOND:
            place = "last" if self.answered else "first"
            raise AllAlikeError(
                f"The {place} {self._count} requests to {self.server} failed. {failure.reason}"
            )

    @property
    def _is_in_doubt(self) -> bool:
        return self.max_retries > 0 and len(self._failed) >= ENOUGH
