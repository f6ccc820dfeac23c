"""Serving once the engines' processes have begun: what connections may take, and stopping so that
nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import signal
import socket
import time
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from functools import partial
from math import inf
from types import FrameType
from typing import Any, ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relquery.backends.remote.link import Link
from relquery.backends.remote.process import EngineProcess, settle
from relquery.errors import ConfigError, OrderWarning, PartialResultWarning, PromptWarning
from relquery.serve.app import make_app
from relquery.serve.auth import Authenticator, KeyAuthenticator
from relquery.serve.batches.batches import batching
from relquery.serve.errors import HttpError, openai_body, stopping
from relquery.serve.logs import Tracing
from relquery.serve.middleware import RequestMiddleware, with_cors
from relquery.serve.scores import EmbeddingService
from relquery.serve.server import Server
from relquery.serve.settings import ServeConfig
from relquery.serve.sql_workers.pool import WorkerPool
from relquery.serve.sql_workers.statements import AT_ONCE, Statements

MOST_HEAD = 64 << 10
"""Bytes of a request's first line and headers, and of what follows a body in chunks."""
_WORDS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


class HttpConnection(HttpToolsProtocol):
    """uvicorn's, which by itself would wait for a head of any size without end."""

    patience: ClassVar[float] = 30.0
    """Seconds in which a head must come, in which more of a body must come, and in which all of a
    body must come that is answered already."""
    whole: ClassVar[float] = 600.0
    """Seconds in which a whole body must come, however steadily it comes."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._in_head, self._read = True, 0
        self._tiring: asyncio.TimerHandle | None = None
        self._due = inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._read += len(data)
        elif self._tiring is not None and not self.cycle.response_complete:
            self._wait()
        super().data_received(data)
        if self._in_head and self._read > MOST_HEAD and not self.transport.is_closing():
            self._refuse(431, f"The request's headers have more than {MOST_HEAD:,} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:  # a further request of the connection
            self._in_head, self._read, self._due = True, 0, inf
            self._wait()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            self._read += len(name) + len(value)
            if self._read > 2 * MOST_HEAD:
                raise ValueError("too much follows the body")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._due = False, self.loop.time() + self.whole
        self._wait()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._rest()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What does not parse is answered in the form of all errors."""
        self._refuse(400, msg)

    def _wait(self) -> None:
        self._rest()
        when = min(self.loop.time() + self.patience, self._due)
        self._tiring = self.loop.call_at(when, self._tire)

    def _rest(self) -> None:
        if self._tiring is not None:
            self._tiring.cancel()
            self._tiring = None

    def _tire(self) -> None:
        if self.flow.read_paused:  # the server is slow, not the client
            self._due = self.loop.time() + self.whole
            self._wait()
        elif not self.transport.is_closing():
            self._refuse(408, "The request does not come, or too slowly. Send it in parts.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer, unless an answer has begun, and close the connection."""
        self._rest()
        earlier = self._in_head and (self.cycle is None or self.cycle.response_complete)
        if earlier or not self.cycle.response_started:
            content = json.dumps(openai_body(HttpError(status, message))).encode()
            head = (
                f"HTTP/1.1 {status} {_WORDS[status]}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + content)
        self.transport.close()


_LOG = logging.getLogger("relquery.serve")
TICK = 0.02  # seconds between two looks at what is still open
LAST_WORDS = 2.0  # seconds in which errors reach those whose requests were ended
BACKLOG = 4096  # connections that wait to be accepted
# Seconds that an idle connection stays open. Clients close theirs after 5 (httpx, and with it the
# SDKs) to 60 seconds; if the server were first, it could close one just as a request is sent.
KEEP_ALIVE = 75
THREADS = 64
"""For what would hold up the event loop; most of them wait for the engine."""


def listen(
    config: ServeConfig,
    engines: Sequence[tuple[tuple[str, ...], EngineProcess]],
    pool: WorkerPool,
    told: Callable[[Server, int], None] | None = None,
) -> bool:
    """See serve. engines: by the names by which clients may call their models, which they may still
    load, as the pool may its tables."""
    # Those who ask are told in their answers.
    for kind in (PartialResultWarning, OrderWarning, PromptWarning):
        warnings.simplefilter("ignore", kind)
    gate = Authenticator() if config.keys is None else KeyAuthenticator(config.keys)
    with closing(bind(config.host, config.port)) as listening, ExitStack() as until_it_ends:
        statements = Statements(pool, config, partial(gate.share, AT_ONCE))
        until_it_ends.callback(statements.close)
        embeddings = EmbeddingService(config.embedder)
        until_it_ends.callback(embeddings.close)
        if config.tables:
            pool.refill()  # what is wrong with them should be said now
        traces = Tracing(config.otlp) if config.otlp else None
        if traces is not None:
            until_it_ends.callback(traces.stop)
        # The engines load meanwhile.
        app = make_app(lambda _: _lifespan(server), needs_keys=config.keys is not None)
        links: dict[str, Link] = {}
        for names, engine in engines:
            link = Link(engine.model, engine.options, prepare=engine.prepare, process=engine)
            until_it_ends.callback(link.stop)
            links |= dict.fromkeys(names, link)
        pool.start()  # without tables nobody waits for it
        server = Server(config, links, gate)
        server.keep(statements, embeddings)
        server.app = app
        front = with_cors(RequestMiddleware(app, server, traces), config.origins or ())
        listener = Listener(front if traces is None else traces.traced(front), server, told)
        settle()
        listener.run([listening])
    return not listener.force_exit


@asynccontextmanager
async def _lifespan(server: Server) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "relquery-serve"))
    for each in server.engines:
        each.link.hop = loop.call_soon_threadsafe
    async with batching(server):
        yield
        server.admission.stopping = True


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address, which does not listen yet.

    Raises ConfigError for an address that is taken or that this machine does not have.
    """
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        taken = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {host}: {error.strerror or error}.") from error
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except OSError as error:
        taken.close()
        raise ConfigError(_why_not(host, port, error)) from error
    return taken


def _why_not(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} of {host} is taken. Give another one: --port (0: any free one)."
        case errno.EACCES:
            return f"Port {port} is not allowed to you. Give one above 1023: --port 8000."
    return f"This machine cannot listen at {host}, port {port}: {error.strerror}. Check --host."


class Listener(uvicorn.Server):
    """uvicorn's server, which stops in an order of ours.

    The first signal: new requests are answered 503, those that run have the grace of the settings
    to end, and what is left ends with an error. A second Ctrl-C: all at once.

    told: called with the server and its port once it takes requests.
    """

    def __init__(
        self, app: ASGIApp, server: Server, told: Callable[[Server, int], None] | None
    ) -> None:
        super().__init__(_settings(app, server.config))
        self._server, self._told = server, told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take requests. Raises ConfigError for an address that was taken meanwhile."""
        try:
            await super().startup(sockets)
        except OSError as error:
            config = self._server.config
            raise ConfigError(_why_not(config.host, config.port, error)) from error
        if self._told is not None and sockets:
            self._told(self._server, sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal says to stop. Unlike uvicorn's, the process does not end by it."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = self._server.admission.stopping = True

    async def main_loop(self) -> None:
        """Serve until a signal, and then until nothing is open."""
        await super().main_loop()
        self._server.admission.stopping = True
        grace = self._server.config.grace
        if self._server.serving:
            _LOG.info("stopping; %d requests have %g s to end", self._server.serving, grace)
        await self._until_idle(grace)
        links = [each.link for each in self._server.engines]
        if self.force_exit:
            for link in links:
                link.stop(patience=0.0)
            return
        for link in links:
            link.abandon(stopping())
        ending = [asyncio.to_thread(link.stop) for link in links]
        await asyncio.gather(self._until_idle(LAST_WORDS), *ending)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what is open. uvicorn leaves out the application's end after a second Ctrl-C, which
        then breaks its task, and the log has a traceback."""
        await super().shutdown(sockets)
        if self.force_exit:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.lifespan.shutdown(), LAST_WORDS)

    async def _until_idle(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._server.serving and not self.force_exit and time.monotonic() < until:
            await asyncio.sleep(TICK)


def _settings(app: ASGIApp, config: ServeConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
        server_header=False,
        proxy_headers=False,  # nothing here asks where a request comes from
        http=HttpConnection,
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
    )
