"""Starting a server, and stopping it so that nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from relquery.backends.remote.link import Link
from relquery.serve.access.gate import Gate
from relquery.serve.app import Lifespan, make_app
from relquery.serve.middleware import Front
from relquery.serve.ours.opening import opened
from relquery.serve.server import Server
from relquery.serve.settings import ServeConfig
from relquery.serve.wire.openai.batches.batches import batching


def serve(config: ServeConfig, told: Callable[[Server, int], None] | None = None) -> None:
    """Serve until a signal says to stop.

    told: called with the server and its port once it takes requests. Raises what opening the model
    raises, and OSError for a port that is taken.
    """
    link = Link(config.model, config.options)
    try:
        server = Server(config, link, Gate())
        app = Front(make_app(_lifespan(server)), server)
        with opened(server):
            uvicorn.Server(_Uvicorn.settings(app, config)).run()
    finally:
        link.stop()
    del told


def _lifespan(server: Server) -> Lifespan:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        server.link.hop = loop.call_soon_threadsafe
        async with batching(server) as app.state.batches:
            yield
            server.stopping = True

    return lifespan


class _Uvicorn:
    @staticmethod
    def settings(app: Front, config: ServeConfig) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=int(config.grace),
            server_header=False,
            backlog=4096,
        )
