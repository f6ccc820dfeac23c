"""Starting a server, and stopping it so that nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI

from relquery.backends.remote.link import Link
from relquery.backends.remote.process import settle
from relquery.serve.access.gate import Gate, KeyGate
from relquery.serve.access.keys import read_keys, weights_of
from relquery.serve.access.pages import with_cors
from relquery.serve.app import Lifespan, make_app
from relquery.serve.middleware import Front
from relquery.serve.operation.listening import Listener, bind
from relquery.serve.operation.logs import set_up
from relquery.serve.operation.tracing import Tracing, open_tracing
from relquery.serve.ours.opening import opened
from relquery.serve.server import Server
from relquery.serve.settings import ServeConfig
from relquery.serve.wire.openai.batches.batches import batching

THREADS = 64
"""For what would hold up the event loop; most of them wait for the engine."""


def serve(config: ServeConfig, told: Callable[[Server, int], None] | None = None) -> bool:
    """Serve until a signal says to stop; False if a second one said to stop at once.

    told: called with the server and its port once it takes requests. Raises what opening the model
    raises, and before that ConfigError for an address that is taken and for a wrong keys' file,
    TableError and MarkupError for files that cannot be read.
    """
    set_up(config.log, config.log_level)
    gate = Gate() if config.keys is None else KeyGate(config.keys)
    with closing(bind(config.host, config.port)) as listening, opened(config) as kept:
        traces = None if config.otlp is None else open_tracing(config.otlp, _name_of(config))
        logs = partial(set_up, config.log, config.log_level)
        link = Link(config.model, _options(config), prepare=logs)
        try:
            server = Server(config, link, gate)
            for thing in kept:
                server.keep(thing)
            app = make_app(_lifespan(server), needs_keys=config.keys is not None)
            front = with_cors(Front(app, server, traces), config.origins)
            listener = Listener(front, server, told)
            settle()
            listener.run([listening])
        finally:
            link.stop()
            _stop(traces)
    return not listener.force_exit


def _name_of(config: ServeConfig) -> str:
    return config.called[0]


def _options(config: ServeConfig) -> dict[str, Any]:
    """The engine's options, and what the keys say of tenants."""
    found = dict(config.options)
    if config.adapters:
        found["adapters"] = config.adapters
    if config.keys is not None:
        found["weights"] = {**weights_of(read_keys(config.keys)), **found.get("weights", {})}
        found.setdefault("share_prefixes", config.share_cache)
    return found


def _lifespan(server: Server) -> Lifespan:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, "relquery-serve"))
        server.link.hop = loop.call_soon_threadsafe
        watching = asyncio.create_task(server.gate.watch())
        async with batching(server) as batches:
            server.keep(batches)
            yield
            server.stopping = True
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    return lifespan


def _stop(traces: Tracing | None) -> None:
    if traces is not None:
        traces.stop()
