"""What has been sent and what came of it, for those who watch."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Lock

from relquery.backends.base import Tally
from relquery.backends.provider.form.reply import Usage
from relquery.backends.provider.sending.budget import Usd

_LOG = logging.getLogger("relquery")


@dataclass(slots=True)
class Counting:
    """Counted in the threads that ask, and read in any."""

    usd: Usd | None
    calls: int = 0
    retries: int = 0
    failures: int = 0
    prompt: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    spent: float = 0.0
    _has_told: bool = False
    _lock: Lock = field(default_factory=Lock)

    def sent(self, *, again: bool) -> None:
        """A call is sent. again: not the first for its prompt."""
        with self._lock:
            self.calls += 1
            self.retries += again

    def sent_many(self, count: int) -> None:
        """So many are sent at once, each for the first time."""
        with self._lock:
            self.calls += count

    def failed(self) -> None:
        """A prompt has ended without an answer."""
        with self._lock:
            self.failures += 1

    def used(self, usage: Usage) -> None:
        """A reply has come."""
        with self._lock:
            self.prompt += usage.prompt
            self.cached += usage.cached
            self.written += usage.written
            self.output += usage.output
            self.spent += 0.0 if self.usd is None else self.usd(usage)
            is_first = bool(usage.contradiction) and not self._has_told
            self._has_told |= is_first
        if is_first:
            _LOG.warning(
                "The server's count of tokens does not add up: %s. The dearest reading counts.",
                usage.contradiction,
            )

    def tally(self, waiting: float) -> Tally:
        """All so far. waiting: seconds until more is sent."""
        with self._lock:
            return Tally(
                self.calls,
                self.retries,
                self.failures,
                self.prompt,
                self.cached,
                self.written,
                self.output,
                waiting,
                None if self.usd is None else self.spent,
            )
