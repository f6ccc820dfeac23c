"""The stand-in over HTTP on loopback, in a thread of this process."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from benchmarks.peers.standin.provider import Provider, Reply, error
from relquery.errors import RelqueryError

DELAY = 0.05
"""Seconds that a call takes."""
_PATIENCE = 30.0
_QUIET = 0.5
ROUTE = "/chat/completions"


@dataclass(slots=True)
class Standin:
    """A provider with an address.

    peak: requests that clients had under way at once, at most. path: of the API, before its routes.
    """

    provider: Provider
    path: str = "/v1"
    port: int = 0
    peak: int = 0
    _open: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}{self.path}"

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

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":  # a client was killed while it sent this
                return
            body += event.get("body", b"")
            more = event.get("more_body", False)
        if scope["path"] != self.path + ROUTE:
            await _send(send, error(404, f"There is no route {scope['path']}.", "not_found"))
            return
        self._open += 1
        self.peak = max(self.peak, self._open)
        try:
            with self._changed:
                reply = self.provider.reply(json.loads(body))
                self._changed.notify_all()
            await asyncio.sleep(DELAY)
        finally:
            self._open -= 1
        await _send(send, reply)


async def _send(send: Callable[[dict[str, Any]], Awaitable[None]], reply: Reply) -> None:
    data = json.dumps(reply.body).encode()
    named = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    headers = [(name.encode(), value.encode()) for name, value in [*named, *reply.headers]]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


@contextmanager
def serving(provider: Provider, path: str = "/v1") -> Iterator[Standin]:
    """A stand-in that serves until the block ends."""
    standin = Standin(provider, path)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)  # now, as the server in its thread may be later than the block
        standin.port = int(listening.getsockname()[1])
        config = uvicorn.Config(
            standin, log_level="error", access_log=False, lifespan="off", timeout_keep_alive=600
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield standin
        finally:
            server.should_exit = server.force_exit = True
            thread.join(_PATIENCE)
            if thread.is_alive():
                raise RelqueryError("The stand-in does not end.")
