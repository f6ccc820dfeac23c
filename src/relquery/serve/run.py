"""Starting a server, and stopping it so that nothing is lost."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI

from relquery.backends.remote.link import Link
from relquery.backends.remote.process import settle
from relquery.errors import OrderWarning, PartialResultWarning, PromptWarning
from relquery.serve.api.prompts import Registry
from relquery.serve.app import Lifespan, make_app
from relquery.serve.auth import Authenticator, KeyAuthenticator, read_keys, weights_of
from relquery.serve.batches.batches import batching
from relquery.serve.connections import Listener, bind
from relquery.serve.embeddings import EmbeddingService
from relquery.serve.logs import set_up
from relquery.serve.middleware import RequestMiddleware, with_cors
from relquery.serve.server import Server
from relquery.serve.settings import ServeConfig
from relquery.serve.sql_workers.hosting import Statements
from relquery.serve.sql_workers.pool import Pool
from relquery.serve.tasks import AT_ONCE, TaskPool
from relquery.serve.tracing import Tracing

THREADS = 64
"""For what would hold up the event loop; most of them wait for the engine."""


def serve(config: ServeConfig, told: Callable[[Server, int], None] | None = None) -> bool:
    """Serve until a signal says to stop; False if a second one said to stop at once.

    told: called with the server and its port once it takes requests. Raises what opening the model
    raises, and before that ConfigError for an address that is taken and for a wrong keys' file,
    TableError and MarkupError for files that cannot be read.
    """
    set_up(config.log, config.log_level)
    gate = Authenticator() if config.keys is None else KeyAuthenticator(config.keys)
    with closing(bind(config.host, config.port)) as listening, opened(config, gate) as kept:
        traces = None if config.otlp is None else Tracing(config.otlp, config.called[0])
        logs = partial(set_up, config.log, config.log_level)
        link = Link(config.model, _options(config), prepare=logs)
        try:
            server = Server(config, link, gate)
            for thing in kept:
                server.keep(thing)
            app = make_app(_lifespan(server), needs_keys=config.keys is not None)
            front = with_cors(RequestMiddleware(app, server, traces), config.origins)
            listener = Listener(front if traces is None else traces.traced(front), server, told)
            settle()
            listener.run([listening])
        finally:
            link.stop()
            if traces is not None:
                traces.stop()
    return not listener.force_exit


@contextmanager
def opened(config: ServeConfig, gate: Authenticator) -> Iterator[Sequence[object]]:
    """What a server keeps until the end of the block: its tables, schemas and threads.

    gate: knows the tenants.

    Raises TableError for a table that cannot be read, MarkupError for a schema.
    """
    # Those who ask are told in their answers.
    for kind in (PartialResultWarning, OrderWarning, PromptWarning):
        warnings.simplefilter("ignore", kind)
    registry = Registry(config.schemas)
    embeddings = EmbeddingService(config.embedder)
    tasks = TaskPool(partial(gate.share, AT_ONCE))
    statements = Statements(Pool(config))
    try:
        if config.tables:
            statements.pool.refill()  # what is wrong with them should be said now
        yield statements, tasks, registry, embeddings
    finally:
        embeddings.close()
        tasks.close()
        statements.close()


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
            server.admission.stopping = True
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    return lifespan
