"""A stand-in on loopback, and one whose replies are a function of the request."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn, TypeVar

from benchmarks.standin.errors import Refused, provider_of
from benchmarks.standin.http import Closed, Json, Request, Response, running

Value = TypeVar("Value")
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


class Standin(ABC):
    """A server that counts what is under way. path: of its API, before /v1."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.address = ""
        """Once it runs."""
        self.under_way = self.peak = 0
        """Requests now, and the most at once."""
        self.hung_up = 0
        """Clients that left early."""

    @property
    def root(self) -> str:
        """The address without /v1, as Anthropic's SDK wants it."""
        return self.address + self.path

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"{self.root}/v1"

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        try:
            return await self.reply(request)
        except Refused as refused:
            return refused.reply(provider_of(request))
        finally:
            self.under_way -= 1

    @abstractmethod
    async def reply(self, request: Request) -> Response:
        """Raises Refused, or Closed in place of a reply."""

    async def wait_until_left(self, request: Request) -> NoReturn:
        """Hold a request without a reply until its client leaves. Raises Closed."""
        await request.left()
        self.hung_up += 1
        raise Closed


class Silence(Enum):
    """No reply: the connection is held until the client leaves it, or closed."""

    UNTIL_CLIENT_LEAVES = 1
    HANG_UP = 2


@dataclass(frozen=True, slots=True)
class Stream:
    """Server-sent events, sent while they are read: a script waits or fails between two of them."""

    events: Iterable[Json | str | Silence]
    """A body is sent as JSON, a string as it stands; a silence leaves the stream unended."""


Reply = Response | Json | Refused
"""A body is sent as JSON, an error in the form of the provider whose client asks."""
Script = Callable[[Json], Reply | Stream | Silence]
"""It may block, as it is called in a thread of its own."""


class Scripted(Standin):
    """Answers a route by a script, whatever that asks."""

    def __init__(self, answer: Script, route: str = CHAT) -> None:
        super().__init__(route.partition("/v1/")[0])
        self.answer, self.route = answer, route
        self.asked: list[Json] = []
        """Bodies in order of arrival."""
        self.keys: set[str] = set()
        """Keys of the API that came."""
        self.models: dict[str, str] = {}
        """Those that it says it has, each with its owner."""

    async def reply(self, request: Request) -> Response:
        """What the script makes of it."""
        if request.method == "GET":
            if request.path == "/v1/models":
                return models(self.models)
            raise Refused(404, f"no route {request.path}")
        if request.route != self.route:
            raise Refused(404, f"no route {request.path}")
        body = json.loads(request.body)
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "")
        self.asked.append(body)
        self.keys.add(key.removeprefix("Bearer "))
        reply = await _in_thread(self.answer, body)
        if isinstance(reply, Stream):
            return Response(events=self._sent(reply, request))
        if isinstance(reply, Refused):
            return reply.reply(provider_of(request))
        if isinstance(reply, Silence):
            await self._keep(reply, request)
        return reply if isinstance(reply, Response) else Response(reply)

    async def _keep(self, silence: Silence, request: Request) -> NoReturn:
        if silence is Silence.UNTIL_CLIENT_LEAVES:
            await self.wait_until_left(request)
        raise Closed

    async def _sent(self, stream: Stream, request: Request) -> AsyncIterator[str]:
        events = iter(stream.events)
        while (event := await _in_thread(next, events, None)) is not None:
            if isinstance(event, Silence):
                await self._keep(event, request)
            yield event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
        yield "data: [DONE]\n\n"


def question(body: Json) -> str:
    """The last message of a request."""
    return str((body["input"] if "input" in body else body["messages"])[-1]["content"])


def models(owners: dict[str, str]) -> Response:
    """The list of models, by name and owner."""
    data = [{"id": name, "object": "model", "owned_by": owner} for name, owner in owners.items()]
    return Response({"object": "list", "data": data})


async def _in_thread(function: Callable[..., Value], *given: Any) -> Value:
    """What a function gives, in a thread that nothing waits for when the process ends."""
    done = Future[Value]()

    def run() -> None:
        with suppress(InvalidStateError):  # the server is closed
            try:
                done.set_result(function(*given))
            except Exception as error:
                done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(done)


Started = TypeVar("Started", bound=Standin)


@contextmanager
def started(standin: Started) -> Iterator[Started]:
    """A stand-in in a thread of this process, until the block ends."""
    with running(standin.handle) as standin.address:
        yield standin


@contextmanager
def serving(answer: Script, route: str = CHAT) -> Iterator[Scripted]:
    """A scripted stand-in, until the block ends."""
    with started(Scripted(answer, route)) as standin:
        yield standin


def until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something that other threads or processes bring about. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"did not come about within {seconds:g} s")
        time.sleep(0.01)
