"""The stand-in over HTTP on loopback, in a thread of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.peers.standin.provider import Provider
from benchmarks.providers.standin.forms.asked import Json
from benchmarks.providers.standin.http import Response
from benchmarks.providers.standin.scripted import Scripted, started

DELAY = 0.05
"""Seconds that a call takes."""
_QUIET = 0.5


class Standin(Scripted):
    """A provider with an address. path: of the API, before its routes."""

    def __init__(self, provider: Provider, path: str = "/v1") -> None:
        super().__init__(self._reply, f"{path}/chat/completions")
        self.provider = provider
        self._changed = threading.Condition()

    def wait_for(self, requests: int, seconds: float) -> bool:
        """Wait until there were so many; returns whether there were in time."""
        counts = self.provider.counts
        with self._changed:
            return self._changed.wait_for(lambda: counts.requests >= requests, seconds)

    def settle(self, seconds: float) -> None:
        """Wait until no request comes for half a second: those of a killed client are read late."""
        counts, end = self.provider.counts, time.monotonic() + seconds
        while time.monotonic() < end:
            with self._changed:
                before = counts.requests
                self._changed.wait(_QUIET)
                if counts.requests == before:
                    return

    def _reply(self, body: Json) -> Response:
        with self._changed:
            reply = self.provider.reply(body)
            self._changed.notify_all()
        time.sleep(DELAY)
        return reply


@contextmanager
def serving(provider: Provider, path: str = "/v1") -> Iterator[Standin]:
    """A stand-in that serves until the block ends."""
    with started(Standin(provider, path)) as standin:
        yield standin
