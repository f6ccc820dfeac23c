"""A stand-in whose replies are a function of the request, whatever that asks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from benchmarks.providers.standin.errors import Refused, provider_of
from benchmarks.providers.standin.forms.asked import Json
from benchmarks.providers.standin.http import Closed, Request, Response, running

Found = TypeVar("Found")


class Silence(Enum):
    """No reply: the connection is held until the client leaves it, or closed."""

    UNTIL_CLIENT_LEAVES = 1
    HANG_UP = 2


@dataclass(frozen=True, slots=True)
class Stream:
    """Sent as server-sent events while it is read: a script waits or fails between two of them.

    A body is sent as JSON, a string as it stands; a silence leaves the stream unended.
    """

    events: Iterable[Json | str | Silence]


Script = Callable[[Json], Response | Stream | Silence]


class Scripted:
    """answer: may block, as it is called in a thread of its own. route: of the requests answered.

    address: once it runs. asked: bodies in order of arrival. keys: of API, that came. peak: most at
    once. hung_up: clients that left early. models: that it says it has, each with its owner.
    told: what it tells of a model.
    """

    def __init__(self, answer: Script, route: str = "/v1/chat/completions") -> None:
        self.answer, self.route = answer, route
        self.address = ""
        self.asked: list[Json] = []
        self.keys: set[str] = set()
        self.running = self.peak = self.hung_up = 0
        self.models: dict[str, str] = {}
        self.told: dict[str, Json] = {}

    @property
    def root(self) -> str:
        """The address without /v1, as Anthropic's SDK wants it."""
        return self.address + self.route.partition("/v1/")[0]

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"{self.root}/v1"

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        if request.method == "GET":
            return self._tell(request.path)
        if request.path.partition("?")[0] != self.route:
            return Refused(404, f"no route {request.path}").reply(provider_of(request))
        body = json.loads(request.body)
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "")
        self.asked.append(body)
        self.keys.add(key.removeprefix("Bearer "))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            reply = await _in_thread(self.answer, body)
            if isinstance(reply, Silence):
                await self._keep(reply, request)
        finally:
            self.running -= 1
        assert not isinstance(reply, Silence)
        return Response(events=self._sent(reply, request)) if isinstance(reply, Stream) else reply

    def _tell(self, path: str) -> Response:
        if path == "/v1/models":
            names = self.models.items()
            data = [{"id": name, "object": "model", "owned_by": owner} for name, owner in names]
            return Response({"object": "list", "data": data})
        told = self.told.get(path.removeprefix("/v1/models/"))
        return Refused(404, f"no route {path}").reply("openai") if told is None else Response(told)

    async def _keep(self, silence: Silence, request: Request) -> None:
        """Raises Closed."""
        if silence is Silence.UNTIL_CLIENT_LEAVES:
            await request.left()
            self.hung_up += 1
        raise Closed

    async def _sent(self, stream: Stream, request: Request) -> AsyncIterator[str]:
        events = iter(stream.events)
        while (event := await _in_thread(next, events, None)) is not None:
            if isinstance(event, Silence):
                await self._keep(event, request)
            yield event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
        yield "data: [DONE]\n\n"


async def _in_thread(function: Callable[..., Found], *given: Any) -> Found:
    """What a function gives, in a thread that nothing waits for when the process ends."""
    done = Future[Found]()

    def run() -> None:
        with suppress(InvalidStateError):  # the server is closed
            try:
                done.set_result(function(*given))
            except Exception as error:
                done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(done)


class Server(Protocol):
    """What can be served; address: once it is."""

    address: str

    async def handle(self, request: Request) -> Response:
        """Answer a request."""


Started = TypeVar("Started", bound=Server)


@contextmanager
def started(server: Started) -> Iterator[Started]:
    """A server in a thread of this process, until the block ends."""
    with running(server.handle) as server.address:
        yield server


@contextmanager
def serving(answer: Script, route: str = "/v1/chat/completions") -> Iterator[Scripted]:
    """A scripted stand-in, until the block ends."""
    with started(Scripted(answer, route)) as server:
        yield server
