"""Serving once the engines' processes have begun, and stopping so that nothing is lost."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from functools import partial

from fastapi import FastAPI

from relquery.backends.remote.link import Link
from relquery.backends.remote.process import EngineProcess, settle
from relquery.errors import OrderWarning, PartialResultWarning, PromptWarning
from relquery.serve.api.prompts import Registry
from relquery.serve.app import Lifespan, make_app
from relquery.serve.auth import Authenticator, KeyAuthenticator
from relquery.serve.batches.batches import batching
from relquery.serve.connections import Listener, bind
from relquery.serve.embeddings import EmbeddingService
from relquery.serve.middleware import RequestMiddleware, with_cors
from relquery.serve.server import Server
from relquery.serve.settings import ServeConfig
from relquery.serve.sql_workers.hosting import Statements
from relquery.serve.sql_workers.pool import Pool
from relquery.serve.tasks import AT_ONCE, TaskPool
from relquery.serve.tracing import Tracing

THREADS = 64
"""For what would hold up the event loop; most of them wait for the engine."""


def listen(
    config: ServeConfig,
    engines: Sequence[tuple[tuple[str, ...], EngineProcess]],
    pool: Pool,
    told: Callable[[Server, int], None] | None = None,
) -> bool:
    """See serve. engines: by the names by which clients may call their models, which they may still
    load, as the pool may its tables."""
    gate = Authenticator() if config.keys is None else KeyAuthenticator(config.keys)
    with (
        closing(bind(config.host, config.port)) as listening,
        opened(config, gate, pool) as kept,
        ExitStack() as until_it_ends,
    ):
        traces = None if config.otlp is None else Tracing(config.otlp)
        if traces is not None:
            until_it_ends.callback(traces.stop)
        links: dict[str, Link] = {}
        for names, engine in engines:
            link = Link(engine.model, engine.options, prepare=engine.prepare, process=engine)
            until_it_ends.callback(link.stop)
            links |= dict.fromkeys(names, link)
        server = Server(config, links, gate)
        for thing in kept:
            server.keep(thing)
        app = make_app(_lifespan(server), needs_keys=config.keys is not None)
        front = with_cors(RequestMiddleware(app, server, traces), config.origins)
        listener = Listener(front if traces is None else traces.traced(front), server, told)
        settle()
        listener.run([listening])
    return not listener.force_exit


@contextmanager
def opened(config: ServeConfig, gate: Authenticator, pool: Pool) -> Iterator[Sequence[object]]:
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
    statements = Statements(pool, config)
    try:
        if config.tables:
            pool.refill()  # what is wrong with them should be said now
        yield statements, tasks, registry, embeddings
    finally:
        embeddings.close()
        tasks.close()
        statements.close()


def _lifespan(server: Server) -> Lifespan:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, "relquery-serve"))
        for each in server.engines:
            each.link.hop = loop.call_soon_threadsafe
        watching = asyncio.create_task(server.gate.watch())
        async with batching(server):
            yield
            server.admission.stopping = True
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    return lifespan
