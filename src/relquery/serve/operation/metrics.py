"""/metrics: a server's figures for Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import PlainTextResponse, Response

from relquery.backends.service.state import EngineState
from relquery.serve.documented import errors
from relquery.serve.errors import HttpError
from relquery.serve.server import Server

router = APIRouter(tags=["Operation"])
PATIENCE = 2.0
"""Seconds that the engine has to tell its state: it does so between two steps."""


@router.get("/metrics", response_class=PlainTextResponse, responses=errors(403))
async def show_metrics(request: Request) -> Response:
    """Figures of all tenants in Prometheus' text form."""
    server: Server = request.state.server
    if not request.state.asker.operator:
        raise HttpError(
            403, "Metrics are for keys made with `relquery keys add --operator`.", "no_operator"
        )
    page = server.measures.page(
        server.open, server.serving, await _state(server), server.link.starts
    )
    return Response(page, media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def _state(server: Server) -> EngineState | None:
    """The engine's state without forecasts; None where it does not tell in time."""
    if not server.link.ready:
        return None
    try:
        found: EngineState = await asyncio.wait_for(server.ask("state", 0), PATIENCE)
    except Exception:
        return None
    return found
